package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"caelum/internal/core/mig"
	"caelum/internal/core/place"
)

type placeOptions struct {
	policy   string
	profiles []string
	compare  bool

	given                    []given // --board, --gpu, --idle and --ends, in command-line order
	models, gpus, idle, ends flagInOrder
}

// flagInOrder is a flag whose meaning depends on the preceding flags. For example, --board sets the GPU model of the
// --gpu flags that follow.
type flagInOrder struct {
	name, takes string
	all         *[]given
}

// given is one occurrence of a flagInOrder on the command line.
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
	cmd := &cobra.Command{
		Use:   "place PROFILE[:TIME]...",
		Short: "Show where a policy places slices on GPUs that you draw",
		Long: `place places one slice of each PROFILE, one after the other, on GPUs that you draw on the command
line. It prints each slice's placement and one of these words:
  reuse    the slice is an existing idle instance of the profile
  carve    the units of the placement are free, so the slice can be carved
  reclaim  idle instances, which place lists, must be destroyed before the slice can be carved
place uses the agents' default policy unless --policy specifies another one.

A drawing has the form |cell|cell|...| and must be quoted in a shell. A cell is the name of a
profile, a dot for a free unit, or # for a blocked unit; its width does not matter. An idle instance
is one that no job holds. A --board that is not followed by a --gpu describes one empty GPU.

` + measuresHelp + `
For several GPUs, REACH is the product of their values, CC is the sum, and FRAG is the mean.
Idle instances count as free units.

The lifetime policy also considers when running jobs will end and how long the requesting jobs will
run. For each instance of the preceding --gpu, from left to right, --ends specifies the time until
the job that holds it ends. In PROFILE:TIME, TIME is the run time of the job that requests the
slice. A time has the form 90s, 30m or 2h; if it is missing or given as ?, the policy assumes that
it is very long.

If a request cannot be placed, the exit status is 1. With --compare, the exit status is 1 only if no
policy can place all requests.

` + tablesHelp,
		Example: `  caelum place --board A100-40GB 1g.5gb 4g.20gb
  caelum place --board A100-40GB --gpu '|4g.20gb|.|.|.|.|' --gpu '|.|.|.|.|.|.|.|.|' 1g.5gb 7g.40gb
  caelum place --board A30 --gpu '|.|.|.|.|' --idle '|1g.6gb|1g.6gb|.|.|' 2g.12gb 2g.12gb
  caelum place --board A100-40GB --gpu '|1g.5gb|.|.|.|2g.10gb|.|.|' --ends 2h,10m --policy lifetime 1g.5gb:2h
  caelum place --board A100-40GB --compare 1g.5gb 2g.10gb 3g.20gb`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New(
					"no profile specified; specify a profile, as in `caelum place --board A100-40GB 1g.5gb 3g.20gb`",
				)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.compare && cmd.Flags().Changed("policy") {
				return usageError{errors.New("--compare shows every policy; omit --policy")}
			}
			return runPlace(cmd.OutOrStdout(), g, o, args)
		},
	}
	o.addFlags(cmd.Flags())
	return cmd
}

func (o *placeOptions) addFlags(f *pflag.FlagSet) {
	o.models = flagInOrder{"--board", "BOARD", &o.given}
	o.gpus = flagInOrder{"--gpu", "DRAWING", &o.given}
	o.idle = flagInOrder{"--idle", "DRAWING", &o.given}
	o.ends = flagInOrder{"--ends", "TIME,...", &o.given}
	f.Var(&o.models, "board", "the GPU model of the --gpu flags that follow")
	f.Var(&o.gpus, "gpu", "a drawing of the instances that jobs hold on one GPU")
	f.Var(&o.idle, "idle", "a drawing of the idle instances of the preceding --gpu")
	f.Var(&o.ends, "ends", "the times until the jobs on the preceding --gpu end, as in 2h,10m,?")
	f.StringVar(&o.policy, "policy", place.DefaultPolicy, "the policy: "+strings.Join(place.Names(), ", "))
	f.BoolVar(&o.compare, "compare", false, "show all policies side by side")
	f.StringSliceVar(&o.profiles, "profiles", nil, profilesHelp)
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
	t := placeAll(policy, o.policy, gpus, requests)
	if g.json {
		err = printJSON(w, t.json())
	} else {
		t.print(w)
	}
	return errors.Join(err, t.noRoom())
}

// step is the result of a single request.
type step struct {
	profile     string
	placed      bool
	gpu         int // the index of the GPU
	index       int // the index of the placement in the Placements of the GPU model
	acquisition place.Acquisition
	gone        mig.Layout // the idle instances that were destroyed to make room
	left        place.GPU  // the GPU after the placement
	room        bool       // true if the request was not placed even though a placement is free
}

// trial holds the results of one policy for all requests.
type trial struct {
	policy string
	before []place.GPU
	after  []place.GPU
	steps  []step
}

// placeAll places the requests one after the other.
func placeAll(policy place.Policy, name string, gpus []place.GPU, waiting []place.Request) trial {
	t := trial{policy: name, before: gpus}
	pool := place.NewPool(gpus)
	var recent place.Recent
	for _, r := range waiting {
		recent.Add(r)
	}
	mean := recent.MeanDuration()
	for _, r := range waiting {
		s := step{profile: r.Profile}
		c := policy.Choose(&place.Situation{Pool: pool, MeanDuration: mean}, r)
		if c.Verdict == place.Here {
			g := pool.GPU(c.GPU)
			s.placed, s.gpu, s.index, s.gone = true, c.GPU, c.Placement, g.InTheWay(c.Placement)
			s.acquisition, _ = g.AcquisitionOf(c.Placement)
			pool.Start(c.GPU, c.Placement, r.Duration)
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

// hasRoom reports whether a GPU has an open placement of the profile, regardless of the policy.
func hasRoom(pool *place.Pool, profile string) bool {
	for k := range pool.Len() {
		g := pool.GPU(k)
		if p, ok := g.Model.ProfileIndex(profile); ok && g.Model.Open(g.Busy, g.Blocked)&g.Model.OfProfile(p) != 0 {
			return true
		}
	}
	return false
}

func layoutOf(g place.GPU) *mig.LayoutInfo { return g.Model.TableBeside(g.Blocked).Info(g.Busy) }

// noRoom returns an error that names the requests without a placement, or nil if the policy placed all requests.
func (t trial) noRoom() error {
	var unplaced []string
	for k, s := range t.steps {
		if !s.placed {
			unplaced = append(unplaced, fmt.Sprintf("%s (request %d)", s.profile, k+1))
		}
	}
	if unplaced == nil {
		return nil
	}
	return fmt.Errorf("no room for %s", strings.Join(unplaced, ", "))
}
