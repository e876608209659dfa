package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"caelum/internal/mig"
	"caelum/internal/place"
)

type placeOptions struct {
	policy   string
	profiles []string
	compare  bool

	given              []given // --board, --gpu and --idle, in the order of the command line
	boards, gpus, idle flagInOrder
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
	cmd := &cobra.Command{
		Use:   "place PROFILE...",
		Short: "Try where slices would go on GPUs that you draw",
		Long: `place puts one slice of each PROFILE, one after the other, onto GPUs that are drawn on the command line, and says where each
goes and by which means: reuse (an idle instance of the profile stands there), carve (its units are free) or reclaim
(idle instances have to be destroyed first; it names them). The policy is the agent's, unless --policy names another.

A drawing is |cell|cell|...|, in quotes for the shell: a profile's name, a dot for a free unit, a # for one that is blocked.
Widths do not matter. An idle instance is one that no job holds. A --board with no --gpu behind it is one empty GPU.

` + measuresHelp + ` Idle instances do not
count: their room can be had. REACH of several GPUs is the product, CC the sum, FRAG the mean.

Nobody knows when what is drawn ends, and all slices are taken to run equally long: the policies that look at ends (lifetime,
scarcity, qla) have little to go by here.

The exit status is 1 when a request finds no room; with --compare, when no policy has room for all.

` + tablesHelp,
		Example: `  caelum place --board A100-40GB 1g.5gb 4g.20gb
  caelum place --board A100-40GB --gpu '|4g.20gb|.|.|.|.|' --gpu '|.|.|.|.|.|.|.|.|' 1g.5gb 7g.40gb
  caelum place --board A30 --gpu '|.|.|.|.|' --idle '|1g.6gb|1g.6gb|.|.|' 2g.12gb 2g.12gb
  caelum place --board A100-40GB --compare 1g.5gb 2g.10gb 3g.20gb`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("place what? Name the profiles, as in `caelum place --board A100-40GB 1g.5gb 3g.20gb`")
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
	f.StringVar(&o.policy, "policy", place.DefaultPolicy, "one of "+strings.Join(place.Names(), ", "))
	f.BoolVar(&o.compare, "compare", false, "every policy, side by side")
	f.StringSliceVar(&o.profiles, "profiles", nil, "the profiles that count; default those without variants (+me, ...), \"all\" every one")
	return cmd
}

func runPlace(w io.Writer, g *globals, o placeOptions, profiles []string) error {
	gpus, err := readGPUs(o)
	if err != nil {
		return err
	}
	if err := checkRequests(gpus, profiles); err != nil {
		return err
	}
	if o.compare {
		return compare(w, g, gpus, profiles)
	}
	policy, err := place.ByName(o.policy)
	if err != nil {
		return usageError{err}
	}
	t := try(policy, o.policy, gpus, profiles)
	if g.json {
		err = printJSON(w, t.json())
	} else {
		t.print(w)
	}
	return errors.Join(err, t.noRoom())
}

// readGPUs makes the GPUs of the flags. GPUs of one board share it.
func readGPUs(o placeOptions) ([]place.GPU, error) {
	var gpus []place.GPU
	var whole []*mig.Board
	boards := map[string]*mig.Board{}
	var board *mig.Board
	bare := false // a --board that no --gpu has followed yet
	for _, f := range o.given {
		if f.flag != "--board" && board == nil {
			return nil, usageError{fmt.Errorf("%s %s: of which board? Put --board before it; `caelum profiles` lists them", f.flag, f.value)}
		}
		if bare && f.flag != "--gpu" {
			gpus, bare = append(gpus, place.GPU{Board: board}), false
		}
		switch f.flag {
		case "--board":
			b, err := boardNamed(f.value)
			if err != nil {
				return nil, err
			}
			if boards[b.Name] == nil {
				whole = append(whole, b)
				boards[b.Name] = selected(b, o.profiles)
			}
			board, bare = boards[b.Name], true
		case "--gpu":
			l, blocked, err := readDrawing(f.flag, board, f.value)
			if err != nil {
				return nil, err
			}
			gpus, bare = append(gpus, place.GPU{Board: board, Layout: l, Blocked: blocked}), false
		case "--idle":
			if err := addIdle(&gpus[len(gpus)-1], f.value); err != nil {
				return nil, err
			}
		}
	}
	if bare {
		gpus = append(gpus, place.GPU{Board: board})
	}
	if gpus == nil {
		return nil, usageError{errors.New("on which GPUs? `--board A100-40GB` is one empty A100; --help shows how to draw others")}
	}
	return gpus, checkProfiles(o.profiles, whole...)
}

func addIdle(g *place.GPU, drawing string) error {
	idle, blocked, err := readDrawing("--idle", g.Board, drawing)
	if err != nil {
		return err
	}
	b := g.Board
	busy := b.DrawBeside(g.Layout, g.Blocked)
	switch {
	case blocked != 0:
		return usageError{fmt.Errorf("--idle %s: blocked units (#) belong into --gpu", drawing)}
	case g.Idle != 0:
		return usageError{fmt.Errorf("--idle %s: this GPU has an --idle already; draw all idle instances of a GPU in one", drawing)}
	case b.Occupied(idle)&(b.Occupied(g.Layout)|g.Blocked) != 0:
		return usageError{fmt.Errorf("--idle %s: overlaps what is busy or blocked on the GPU, %s", drawing, busy)}
	case !b.Legal(g.Layout | idle):
		return usageError{fmt.Errorf("--idle %s: together with %s it is over the instance limits or engines of %s", drawing, busy, b.Name)}
	}
	g.Idle = idle
	return nil
}

// checkRequests finds the first profile that none of the GPUs has.
func checkRequests(gpus []place.GPU, profiles []string) error {
	var boards []*mig.Board
	for _, g := range gpus {
		boards = append(boards, g.Board)
	}
	for _, p := range profiles {
		if !slices.ContainsFunc(boards, func(b *mig.Board) bool { _, ok := b.ProfileIndex(p); return ok }) {
			return usageError{fmt.Errorf("no profile %q here: %s (--profiles adds variants)", p, strings.Join(everyProfile(boards), "; "))}
		}
	}
	return nil
}

// step is what became of one request.
type step struct {
	profile string
	placed  bool
	gpu     int // index of the GPU it went to
	index   int // of the placement, in its board's Placements
	means   place.Means
	gone    mig.Layout // idle instances that were destroyed for it
	left    place.GPU  // what stands there afterwards
	room    bool       // not placed: there was room, but not for this policy
}

// trial is a policy and what it made of the requests.
type trial struct {
	policy string
	before []place.GPU
	after  []place.GPU
	steps  []step
}

// try places one request after the other; the policy sees those that are still to come.
func try(policy place.Policy, name string, gpus []place.GPU, profiles []string) trial {
	t := trial{policy: name, before: gpus}
	pool := place.NewPool(gpus)
	var waiting []place.Request
	for _, p := range profiles {
		waiting = append(waiting, place.Request{Profile: p, Duration: math.Inf(1)})
	}
	for k, r := range waiting {
		c := policy.Choose(&place.Situation{Pool: pool, Behind: waiting[k+1:]}, r)
		s := step{profile: r.Profile}
		if c.Verdict == place.Here {
			g := pool.GPU(c.GPU)
			s.placed, s.gpu, s.index, s.gone = true, c.GPU, c.Placement, g.InTheWay(c.Placement)
			s.means, _ = g.MeansOf(c.Placement)
			pool.Start(c.GPU, c.Placement, math.Inf(1))
			s.left = pool.GPU(c.GPU)
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
		if p, ok := g.Board.ProfileIndex(profile); ok && g.Board.Open(g.Layout, g.Blocked)&g.Board.OfProfile(p) != 0 {
			return true
		}
	}
	return false
}

func node(g place.GPU) *mig.Node { return g.Board.TableBeside(g.Blocked).Node(g.Layout) }

// noRoom names the requests that found none.
func (t trial) noRoom() error {
	var without []string
	for k, s := range t.steps {
		if !s.placed {
			without = append(without, fmt.Sprintf("%s (request %d)", s.profile, k+1))
		}
	}
	if without == nil {
		return nil
	}
	return fmt.Errorf("no room for %s", strings.Join(without, ", "))
}
