// Package lint checks rules that the usual linters do not check, for example which packages a package may import. It
// has only tests.
package lint

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// layers lists the packages in order, folder by folder. A package may import only those that precede it. The two lines
// of core are separated by slurm, because the second works on slurmctld's records; node and controller are separated by
// config, which checks the keys of all their packages.
var layers = []string{
	"internal/version", "internal/failpoint", "internal/trust", "internal/hook", "internal/sqlite",
	"internal/core/mig", "internal/core/place", "internal/core/offer", "internal/core/predict",
	"internal/slurm",
	"internal/core/tags", "internal/core/eligible", "internal/core/plan", "internal/core/preempt", "internal/core/part",
	"internal/node/api", "internal/node/jobcgroup", "internal/node/ledger",
	"internal/node/gpu", "internal/node/inventory",
	"internal/controller/decisions", "internal/controller/notify", "internal/controller/repo",
	"internal/controller/learn", "internal/controller/shadow",
	"internal/config", "internal/daemon",
	"internal/node/metrics", "internal/node/usage", "internal/node/state", "internal/node/publish",
	"internal/node/agent", "internal/node/qualify",
	"internal/controller/watch",
	"internal/cli/gpuhours", "internal/cli/jobreport", "internal/cli/overview", "internal/cli/doctor",
	"internal/cli/man", "internal/cli/setup",
	"internal/sim/trace", "internal/sim", "internal/sim/report",
}

// leaves lists the packages that may not import any other Caelum package, with the reason for each.
var leaves = map[string]string{
	"internal/slurm": "the package only queries slurmctld and parses the output; eligible, offer and plan make " +
		"decisions",
}

// exceptions lists the permitted imports that violate the order, with the reason for each.
var exceptions = map[[2]string]string{
	{"internal/node/ledger", "internal/node/api"}: "the ledger stores a lease in the form that the socket transmits",
}

// pure lists the packages without I/O that make decisions both in production and in simulations, with a description
// of these decisions, which must depend only on the input values.
var pure = map[string]string{
	"internal/core/mig":          "geometry",
	"internal/core/place":        "placement",
	"internal/core/offer":        "offers",
	"internal/core/predict":      "prediction",
	"internal/cli/gpuhours":      "the GPU time of ended runs",
	"internal/core/tags":         "the meaning of tags",
	"internal/cli/jobreport":     "advice on jobs",
	"internal/core/eligible":     "eligibility",
	"internal/core/preempt":      "preemption",
	"internal/controller/shadow": "a trial without writes",
	"internal/cli/setup":         "changes to the site's configuration",
	"internal/core/plan":         "the plan for all nodes",
	"internal/core/part":         "a node's part of the plan",
	"contrib/lab/reconfigure":    "reconfiguration",
}

// values lists the packages with I/O whose types and parsers pure packages may use. All other Caelum packages that a
// pure package imports must be pure, so that it does no I/O through them.
var values = map[string]string{
	"internal/slurm":                "slurmctld's records",
	"internal/node/gpu":             "the driver's description of a GPU",
	"internal/node/inventory":       "the GPUs and profiles of a node",
	"internal/controller/decisions": "the lines of a decision table",
}

// forbidden maps each import that pure packages must not have to a description of what they must not use.
var forbidden = map[string]string{
	"os":           "I/O",
	"net":          "I/O",
	"net/http":     "I/O",
	"os/exec":      "processes",
	"database/sql": "I/O",
	"log":          "I/O",
	"math/rand":    "randomness",
	"math/rand/v2": "randomness",
	"context":      "waiting",
}

// spankBans lists the packages that the Go object in Slurm's prolog must not import directly or indirectly, with the
// reason for each.
var spankBans = map[string]string{
	"github.com/NVIDIA/go-nvml": "the package needs lazy binding and opens the driver in Slurm's process",
	"github.com/mattn":          "a prolog needs no database",
	"github.com/spf13":          "only the agent reads the configuration",
	"github.com/sirupsen":       "the Go object writes messages to Slurm's log",
	"os/signal":                 "the package installs signal handlers in Slurm's process",
	"os/exec":                   "Slurm ends the child processes of a prolog when the prolog returns",
}

type pkg struct {
	ImportPath string
	Dir        string
	Imports    []string
	Deps       []string
}

func list(t *testing.T) []pkg {
	t.Helper()
	all := append(listIn(t, "../.."), listIn(t, "../../contrib/lab")...)
	if len(all) < 10 {
		t.Fatalf("go list returned %d packages", len(all))
	}
	return all
}

// listIn returns the packages of the Go module in a directory.
func listIn(t *testing.T, dir string) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Dir,Imports,Deps", "./...")
	cmd.Dir = dir
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var all []pkg
	for d := json.NewDecoder(out); ; {
		var p pkg
		if err := d.Decode(&p); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		p.ImportPath = strings.TrimPrefix(p.ImportPath, "caelum/")
		all = append(all, p)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("go list: %v", err)
	}
	return all
}

// problems returns a message for each rule that a package's imports violate.
func problems(p pkg) (broken []string) {
	at := slices.Index(layers, p.ImportPath)
	if at < 0 && strings.HasPrefix(p.ImportPath, "internal/") && !strings.HasSuffix(p.ImportPath, "test") &&
		p.ImportPath != "internal/lint" {
		broken = append(broken, p.ImportPath+" is not in layers")
	}
	for _, imported := range p.Imports {
		name, ours := strings.CutPrefix(imported, "caelum/")
		if why, banned := forbidden[imported]; banned && pure[p.ImportPath] != "" {
			broken = append(broken,
				fmt.Sprintf("%s (%s) imports %s, but a pure package must not use %s",
					p.ImportPath, pure[p.ImportPath], imported, why))
		}
		if !ours || at < 0 || exceptions[[2]string{p.ImportPath, name}] != "" {
			continue
		}
		if pure[p.ImportPath] != "" && pure[name] == "" && values[name] == "" {
			broken = append(broken, fmt.Sprintf("%s (%s) imports %s, which is not pure", p.ImportPath,
				pure[p.ImportPath], name))
		}
		if why := leaves[p.ImportPath]; why != "" {
			broken = append(broken, fmt.Sprintf("%s must not import %s: %s", p.ImportPath, name, why))
		}
		if k := slices.Index(layers, name); k < 0 || k >= at {
			broken = append(broken,
				fmt.Sprintf("%s imports %s, which does not precede %[1]s in layers", p.ImportPath, name))
		}
	}
	return broken
}

func TestLayers(t *testing.T) {
	for _, p := range list(t) {
		for _, problem := range problems(p) {
			t.Error(problem)
		}
	}
}

// TestForbiddenImports tests that problems rejects imports that would let a package both read data and make decisions,
// or both make decisions and change data.
func TestForbiddenImports(t *testing.T) {
	for _, c := range [][2]string{
		{"internal/slurm", "caelum/internal/core/mig"},
		{"internal/slurm", "caelum/internal/core/offer"},
		{"internal/slurm", "caelum/internal/core/tags"},
		{"internal/slurm", "caelum/internal/core/eligible"},
		{"internal/slurm", "caelum/internal/core/plan"},
		{"internal/core/mig", "caelum/internal/slurm"},
		{"internal/core/offer", "caelum/internal/core/eligible"},
		{"internal/core/eligible", "caelum/internal/core/plan"},
		{"internal/core/eligible", "os"},
		{"internal/core/tags", "os/exec"},
		{"internal/another", "os"},
		{"internal/core/plan", "caelum/internal/node/agent"},
		{"internal/cli/setup", "caelum/internal/node/ledger"}, // an earlier layer, but not pure
	} {
		if problems(pkg{ImportPath: c[0], Imports: []string{c[1]}}) == nil {
			t.Errorf("problems accepts the import of %s by %s", c[1], c[0])
		}
	}
	allowed := pkg{ImportPath: "internal/core/plan", Imports: []string{"caelum/internal/core/eligible"}}
	if p := problems(allowed); p != nil {
		t.Error(p)
	}
}

// TestClock checks that pure packages do not read the clock: they take the time as an argument.
func TestClock(t *testing.T) {
	for dir := range pure {
		paths, err := filepath.Glob(filepath.Join("../..", dir, "*.go"))
		if err != nil || len(paths) == 0 {
			t.Fatalf("couldn't find the Go files of %s (%v)", dir, err)
		}
		for _, path := range paths {
			if text, err := os.ReadFile(path); err != nil {
				t.Error(err)
			} else if !strings.HasSuffix(path, "_test.go") && clock.Match(text) {
				t.Errorf("%s reads the clock", path)
			}
		}
	}
}

var clock = regexp.MustCompile(`\btime\.(Now|Since|Until|Sleep|After|Tick|NewTimer|NewTicker)\b`)

func TestSpankObject(t *testing.T) {
	seen := false
	for _, p := range list(t) {
		if p.ImportPath != "spank/job" {
			continue
		}
		seen = true
		for _, dep := range p.Deps {
			for ban, why := range spankBans {
				if dep == ban || strings.HasPrefix(dep, ban+"/") {
					t.Errorf("spank/job must not depend on %s: %s", dep, why)
				}
			}
		}
	}
	if !seen {
		t.Fatal("go list did not return the package spank/job")
	}
}

// programBans lists the packages that a program must not import directly or indirectly. caelum's commands read files or
// call an agent, and need neither NVML's samplers nor the agent's ledger. The agent runs as root on every node, and
// does not need the code of the watcher.
var programBans = map[string][]string{
	"cmd/caelum": {"internal/node/agent", "internal/controller/watch"},
	"cmd/caelumd": {
		"internal/controller/decisions", "internal/controller/learn", "internal/controller/watch",
		"internal/core/preempt",
	},
	"cmd/caelum-watch": {"internal/node/agent", "internal/node/ledger"},
}

func TestProgramsWithoutOthers(t *testing.T) {
	seen := 0
	for _, p := range list(t) {
		for _, ban := range programBans[p.ImportPath] {
			if seen++; slices.Contains(p.Deps, "caelum/"+ban) {
				t.Errorf("%s must not depend on %s", p.ImportPath, ban)
			}
		}
	}
	if seen < 8 {
		t.Errorf("only %d of the packages in programBans were checked", seen)
	}
}
