package lint

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// mapped lists the packages whose doc.go comment must have a line for each of their files.
var mapped = []string{
	"cmd/caelum", "contrib/devcluster/chaos", "contrib/devcluster/cluster", "contrib/devcluster/oracle",
	"contrib/lab/bench", "contrib/lab/learn", "contrib/lab/papers", "contrib/lab/policies",
	"contrib/lab/reconfigure", "contrib/lab/simulate", "contrib/lab/sizing", "contrib/lab/traces",
	"internal/cli/doctor", "internal/cli/jobreport", "internal/config", "internal/controller/decisions",
	"internal/controller/learn", "internal/controller/notify", "internal/controller/repo",
	"internal/controller/watch", "internal/core/mig", "internal/core/offer", "internal/core/part",
	"internal/core/place", "internal/core/place/placetest", "internal/core/plan", "internal/core/predict",
	"internal/node/agent", "internal/node/api", "internal/node/gpu", "internal/node/ledger", "internal/node/publish",
	"internal/node/state", "internal/node/usage", "internal/sim", "internal/sim/report", "internal/sim/trace",
	"internal/slurm", "internal/sqlite", "internal/trust",
}

// entry matches the beginning of a line in a package comment that describes a file.
var entry = regexp.MustCompile(`(?m)^//\t(\w+\.go) `)

func TestFileMaps(t *testing.T) {
	for _, dir := range mapped {
		text, err := os.ReadFile(filepath.Join("../..", dir, "doc.go"))
		if err != nil {
			t.Fatal(err)
		}
		var named []string
		for _, m := range entry.FindAllStringSubmatch(string(text), -1) {
			named = append(named, m[1])
		}
		paths, err := filepath.Glob(filepath.Join("../..", dir, "*.go"))
		if err != nil || len(paths) == 0 {
			t.Fatalf("couldn't find the Go files of %s (%v)", dir, err)
		}
		var files []string
		for _, path := range paths {
			name := filepath.Base(path)
			if name == "doc.go" || strings.HasSuffix(name, "_test.go") {
				continue
			}
			files = append(files, name)
			if !slices.Contains(named, name) {
				t.Errorf("%s/doc.go does not describe %s; add a line", dir, name)
			}
		}
		for k, name := range named {
			if !slices.Contains(files, name) {
				t.Errorf("%s/doc.go names %s, which does not exist; remove or rename the line", dir, name)
			} else if slices.Contains(named[:k], name) {
				t.Errorf("%s/doc.go names %s twice; remove one of the lines", dir, name)
			}
		}
	}
}
