package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"caelum/internal/mig"
	"caelum/internal/place"
)

type placeOptions struct {
	policy   string
	profiles []string
	compare  bool

	given                    []given // --board, --gpu, --idle and --ends, in the order of the command line
	boards, gpus, idle, ends flagInOrder
}

// flagInOrder is a flag that means something else after another: a --gpu is of the --board before it.
type flagInOrder struct {
	name, takes string
	all         *[]given
}

type given struct{ flag, value string }

// Set implements pflag.Value.
func (f flagInOrder) Set(s string) error {
	*f.all = append(*f.all, given{f.name, s})
	return nil
}

// Type implements pflag.Value.
func (f flagInOrder) Type() string { return f.takes }

// String implements pflag.Value.
func (flagInOrder) String() string { return "" }

func newPlace(g *globals) *cobra.Command {
	var o placeOptions
	o.boards = flagInOrder{"--board", "BOARD", &o.given}
	o.gpus = flagInOrder{"--gpu", "DRAWING", &o.given}
	o.idle = flagInOrder{"--idle", "DRAWING", &o.given}
	o.ends = flagInOrder{"--ends", "TIME,...", &o.given}
	cmd := &cobra.Command{
		Use:   "place PROFILE[:TIME]...",
		Short: "Try where slices would go on GPUs that you draw",
		Long: `place puts one slice of each PROFILE, one after the other, onto GPUs that are drawn on the command line, and says where each
goes and by which means: reuse (an idle instance of the profile stands there), carve (its units are free) or reclaim
(idle instances have to be destroyed first; it names them). The policy is the agent's, unless --policy names another.

A drawing is |cell|cell|...|, in quotes for the shell: a profile's name, a dot for a free unit, a # for one that is blocked.
Widths do not matter. An idle instance is one that no job holds. A --board with no --gpu behind it is one empty GPU.

` + measuresHelp + ` Idle instances do not
count: their room can be had. REACH of several GPUs is the product, CC the sum, FRAG the mean.

Some policies (lifetime, scarcity, qla) look at when what is busy ends and how long requests run. --ends says in how long each
instance of the --gpu before it ends, from left to right (? is unknown), and PROFILE:TIME how long the slice will be held;
times as in 90s, 30m, 2h. What is not said is unknown, and unknown counts as very long. The policies see the requests
as a queue, the first one at its head; qla may hold it though there is room, and then the others wait behind it.

The exit status is 1 when a request finds no room; with --compare, when no policy has room for all.

` + tablesHelp,
		Example: `  caelum place --board A100-40GB 1g.5gb 4g.20gb
  caelum place --board A100-40GB --gpu '|4g.20gb|.|.|.|.|' --gpu '|.|.|.|.|.|.|.|.|' 1g.5gb 7g.40gb
  caelum place --board A30 --gpu '|.|.|.|.|' --idle '|1g.6gb|1g.6gb|.|.|' 2g.12gb 2g.12gb
  caelum place --board A100-40GB --gpu '|1g.5gb|.|.|.|2g.10gb|.|.|' --ends 2h,10m --policy lifetime 1g.5gb:2h
  caelum place --board A100-40GB --compare 1g.5gb 2g.10gb 3g.20gb`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New(
					"place what? Name the profiles, as in `caelum place --board A100-40GB 1g.5gb 3g.20gb`",
				)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.compare && cmd.Flags().Changed("policy") {
				return usageError{errors.New("--compare shows every policy: leave --policy out")}
			}
			return runPlace(cmd.OutOrStdout(), g, o, args)
		},
	}
	f := cmd.Flags()
	f.Var(&o.boards, "board", "the board of the --gpu flags behind it")
	f.Var(&o.gpus, "gpu", "a GPU and what is busy on it, drawn")
	f.Var(&o.idle, "idle", "the idle instances on the GPU before it, drawn")
	f.Var(&o.ends, "ends", "in how long each instance on the GPU before it ends, as in 2h,10m,?")
	f.StringVar(&o.policy, "policy", place.DefaultPolicy, "one of "+strings.Join(place.Names(), ", "))
	f.BoolVar(&o.compare, "compare", false, "every policy, side by side")
	f.StringSliceVar(
		&o.profiles,
		"profiles",
		nil,
		"the profiles that count; default those without variants (+me, ...), \"all\" every one",
	)
	return cmd
}

func runPlace(w io.Writer, g *globals, o placeOptions, args []string) error {
	gpus, err := readGPUs(o)
	if err != nil {
		return err
	}
	requests, err := readRequests(gpus, args)
	if err != nil {
		return err
	}
	if o.compare {
		return compare(w, g, gpus, requests)
	}
	policy, err := place.ByName(o.policy)
	if err != nil {
		return usageError{err}
	}
	t := try(policy, o.policy, gpus, requests)
	if g.json {
		err = printJSON(w, t.json())
	} else {
		t.print(w)
	}
	return errors.Join(err, t.noRoom())
}

// step is what became of one request.
type step struct {
	profile string
	placed  bool
	gpu     int // index of the GPU it went to
	index   int // of the placement, in its GPU model's Placements
	means   place.Acquisition
	gone    mig.Layout // idle instances that were destroyed for it
	left    place.GPU  // what stands there afterwards
	room    bool       // not placed: there was room, but not for this policy
	held    string     // not placed: what it is held for
}

// trial is a policy and what it made of the requests.
type trial struct {
	policy string
	before []place.GPU
	after  []place.GPU
	steps  []step
}

// try places one request after the other; the policy sees those that are still to come.
func try(policy place.Policy, name string, gpus []place.GPU, waiting []place.Request) trial {
	t := trial{policy: name, before: gpus}
	pool := place.NewPool(gpus)
	held := false
	var recent place.Recent
	for _, r := range waiting {
		recent.Asked(r)
	}
	mean := recent.MeanDuration()
	for k, r := range waiting {
		s := step{profile: r.Profile}
		if held {
			s.held = "behind the one that is held"
			t.steps = append(t.steps, s)
			continue
		}
		c := policy.Choose(&place.Situation{Pool: pool, MeanDuration: mean, Ordered: true, Behind: waiting[k+1:]}, r)
		if c.Verdict == place.Here {
			g := pool.GPU(c.GPU)
			s.placed, s.gpu, s.index, s.gone = true, c.GPU, c.Placement, g.InTheWay(c.Placement)
			s.means, _ = g.AcquisitionOf(c.Placement)
			pool.Start(c.GPU, c.Placement, r.Duration)
			s.left = pool.GPU(c.GPU)
		} else if held = c.Verdict == place.Hold; held {
			b := pool.GPU(c.GPU).Model
			free := time.Duration(pool.Free(c.GPU, c.Placement) * float64(time.Second))
			s.held = fmt.Sprintf("held, though there is room: %s of GPU %d is free in %v", b.Label(c.Placement), c.GPU, free)
		} else {
			s.room = hasRoom(pool, r.Profile)
		}
		t.steps = append(t.steps, s)
	}
	for k := range pool.Len() {
		t.after = append(t.after, pool.GPU(k))
	}
	return t
}

// hasRoom reports whether any GPU could take the profile, whatever a policy thinks of it.
func hasRoom(pool *place.Pool, profile string) bool {
	for k := range pool.Len() {
		g := pool.GPU(k)
		if p, ok := g.Model.ProfileIndex(profile); ok && g.Model.Open(g.Layout, g.Blocked)&g.Model.OfProfile(p) != 0 {
			return true
		}
	}
	return false
}

func node(g place.GPU) *mig.Node { return g.Model.TableBeside(g.Blocked).Node(g.Layout) }

// noRoom names the requests that found none, or are held.
func (t trial) noRoom() error {
	var without, held []string
	for k, s := range t.steps {
		switch name := fmt.Sprintf("%s (request %d)", s.profile, k+1); {
		case s.held != "":
			held = append(held, name)
		case !s.placed:
			without = append(without, name)
		}
	}
	var all []error
	if without != nil {
		all = append(all, fmt.Errorf("no room for %s", strings.Join(without, ", ")))
	}
	if held != nil {
		all = append(all, fmt.Errorf("held: %s", strings.Join(held, ", ")))
	}
	return errors.Join(all...)
}
