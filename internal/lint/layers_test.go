// Package lint holds the rules of the code that no linter knows.
package lint

import (
	"encoding/json"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// layers is the order of DESIGN's layout: a package imports only packages that stand above it.
var layers = []string{
	"internal/failpoint", "internal/trust", "internal/sqlite", "internal/mig", "internal/place", "internal/offer", "internal/predict", "internal/decisions", "internal/ledger", "internal/repo", "internal/gpu", "internal/slurm", "internal/learn",
	"internal/plan", "internal/wake", "internal/api", "internal/agent", "internal/watch", "internal/doctor", "internal/trace", "internal/sim", "internal/report",
}

// lower are the imports that the order does not allow but a reason does.
var lower = map[[2]string]string{
	{"internal/ledger", "internal/api"}: "a lease is stored as it goes over the socket",
}

// pure packages decide, in production and in simulation alike: the same values in, the same decision out.
var pure = map[string]string{
	"internal/mig": "geometry", "internal/place": "placing", "internal/offer": "offers", "internal/predict": "prediction",
}

// forbidden to pure packages, and why.
var forbidden = map[string]string{
	"os": "I/O", "net": "I/O", "net/http": "I/O", "os/exec": "processes", "database/sql": "I/O", "log": "I/O",
	"math/rand": "decisions must be repeatable", "math/rand/v2": "decisions must be repeatable", "context": "nothing pure waits",
}

// spankBans keep the Go object small and quiet inside Slurm's prolog.
var spankBans = map[string]string{
	"github.com/NVIDIA/go-nvml": "needs lazy binding and opens the driver in Slurm's process",
	"github.com/mattn":          "a database has no business in a prolog",
	"github.com/spf13":          "configuration is the agent's",
	"github.com/sirupsen":       "messages go through Slurm's own log",
	"os/signal":                 "installs handlers in Slurm's process",
	"os/exec":                   "children of the prolog are killed when it returns",
}

type pkg struct {
	ImportPath string
	Imports    []string
	Deps       []string
}

func list(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports,Deps", "caelum/...")
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
	if err := cmd.Wait(); err != nil || len(all) < 10 {
		t.Fatalf("go list: %v, %d packages", err, len(all))
	}
	return all
}

func TestLayers(t *testing.T) {
	for _, p := range list(t) {
		at := slices.Index(layers, p.ImportPath)
		for _, imported := range p.Imports {
			name, ours := strings.CutPrefix(imported, "caelum/")
			if why, banned := forbidden[imported]; banned && pure[p.ImportPath] != "" {
				t.Errorf("%s imports %s: %s is pure, no %s", p.ImportPath, imported, pure[p.ImportPath], why)
			}
			if !ours || at < 0 || lower[[2]string{p.ImportPath, name}] != "" {
				continue
			}
			if k := slices.Index(layers, name); k < 0 || k >= at {
				t.Errorf("%s imports %s, which does not stand above it", p.ImportPath, name)
			}
		}
	}
}

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
					t.Errorf("spank/job reaches %s: %s", dep, why)
				}
			}
		}
	}
	if !seen {
		t.Fatal("no package spank/job")
	}
}
