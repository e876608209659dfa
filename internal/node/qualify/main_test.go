package qualify

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"caelum/internal/node/gpu/gputest"
	"caelum/internal/node/jobcgroup"
)

// TestMain lets the test binary serve as the helper and as a run that a test kills.
func TestMain(m *testing.M) {
	switch args := os.Args[1:]; {
	case len(args) > 1 && args[0] == HelperCommand:
		if err := Helper(args[1:], os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	case len(args) == 6 && args[0] == "qualify-run":
		opt := Options{Library: args[1], Dev: args[2], Proc: args[3], StateDir: args[4], Modprobe: "/nonexistent",
			Out: os.Stdout, ModeSwitch: true,
			CUDA:      []string{filepath.Join(filepath.Dir(args[1]), "cuda-process"), "--seconds", "60"},
			Fractions: units, Cgroups: jobcgroup.Options{Slice: args[5]}, cuda: filepath.Join(filepath.Dir(args[1]),
				"libcuda.so.1")}
		if _, err := Run(context.Background(), opt); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// node is an emulated node whose files an ordinary user can reach.
type node struct {
	*gputest.Node
	state  string
	slice  string // CgroupSlice, if the node has one
	sticky bool   // the emulated driver removes no limits
}

// units is the fractions key of caelum.yaml.
var units = map[string]int{"l40s": 4}

func newNode(t testing.TB, model string, gpus int, options ...string) node {
	t.Helper()
	n := node{Node: gputest.New(t, model, gpus, options...), state: t.TempDir()}
	n.Close() // the run must be the first to open NVML, which then looks for the files in nvidia-caps
	for _, dir := range []string{n.Dev, n.Proc, filepath.Dir(n.State)} {
		if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

func (n node) options(out *strings.Builder) Options {
	return Options{Library: filepath.Join(n.Build(), "libnvidia-ml.so.1"), Dev: n.Dev, Proc: n.Proc, StateDir: n.state,
		Modprobe: "/nonexistent", Out: out, Fractions: units, Cgroups: jobcgroup.Options{Slice: n.slice},
		cuda: filepath.Join(n.Build(), "libcuda.so.1")}
}

// snapshot returns the emulator's state and the device files with their owners and modes.
func (n node) snapshot(t testing.TB) string {
	t.Helper()
	files, err := deviceFiles(n.Dev)
	if err != nil {
		t.Fatal(err)
	}
	text := n.Emulator(t, "show", "--json")
	if n.sticky {
		text = regexp.MustCompile(`"limits":\[[^]]*\]`).ReplaceAllString(text, "")
	}
	for _, f := range files {
		text += fmt.Sprintf("%s %o %d %d %d\n", f.Path, f.Mode, f.UID, f.GID, f.Rdev)
	}
	if n.slice != "" {
		text += n.cgroups()
	}
	left, _ := os.ReadDir(n.state)
	for _, f := range left {
		text += "left: " + f.Name() + "\n"
	}
	return text
}

// run qualifies the node and checks that it is unchanged.
func (n node) run(t testing.TB, change func(*Options)) *Report {
	t.Helper()
	before := n.snapshot(t)
	var out strings.Builder
	opt := n.options(&out)
	if change != nil {
		change(&opt)
	}
	rep, err := Run(t.Context(), opt)
	if err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if after := n.snapshot(t); after != before {
		t.Errorf("the run changed the node from\n%s\nto\n%s", before, after)
	}
	return rep
}

func (r *Report) String() string {
	var b strings.Builder
	r.Print(&b)
	return b.String()
}
