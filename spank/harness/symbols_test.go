package harness

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// exported returns the dynamic symbols that an object defines.
func exported(t *testing.T, object string) []string {
	t.Helper()
	out, err := exec.Command("nm", "-D", "--defined-only", "-f", "posix", object).Output()
	if err != nil {
		t.Fatalf("nm: %v", err)
	}
	var names []string
	for line := range strings.Lines(string(out)) {
		names = append(names, strings.Fields(line)[0])
	}
	slices.Sort(names)
	return names
}

// scripted returns the global symbols in a version script.
func scripted(t *testing.T, path string) []string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_, body, _ := strings.Cut(string(text), "global:")
	body, _, _ = strings.Cut(body, "local:")
	names := regexp.MustCompile(`\w+`).FindAllString(body, -1)
	slices.Sort(names)
	return names
}

func TestSymbolsAreThoseOfTheVersionScript(t *testing.T) {
	for object, script := range map[string]string{
		"spank_caelum.so":    "../spank_caelum.map",
		"libcaelum_spank.so": "../job/job.map",
	} {
		got, want := exported(t, program(t, object)), scripted(t, script)
		if len(want) == 0 || !slices.Equal(got, want) {
			t.Errorf("%s exports\n%v, its version script lists\n%v", object, got, want)
		}
	}
}

// TestPluginNeedsNothingButLibc checks that the plugin depends only on libc, and in particular not on a Go object.
// Slurm's functions remain undefined.
func TestPluginNeedsNothingButLibc(t *testing.T) {
	out, err := exec.Command("readelf", "-d", program(t, "spank_caelum.so")).Output()
	if err != nil {
		t.Fatal(err)
	}
	needed := regexp.MustCompile(`NEEDED.*\[(.*)\]`).FindAllStringSubmatch(string(out), -1)
	if len(needed) != 1 || needed[0][1] != "libc.so.6" {
		t.Errorf("needs %v", needed)
	}
}

// TestClientLibraryIsNotNeeded checks that the plugin requires only functions that Slurm provides to every plugin. It
// refers to Slurm's client library through weak symbols, so that a process without the library can load the plugin.
func TestClientLibraryIsNotNeeded(t *testing.T) {
	out, err := exec.Command("nm", "-D", "--undefined-only", "-f", "posix", program(t, "spank_caelum.so")).Output()
	if err != nil {
		t.Fatal(err)
	}
	weak := 0
	for line := range strings.Lines(string(out)) {
		name, kind := strings.Fields(line)[0], strings.Fields(line)[1]
		switch {
		case !strings.HasPrefix(name, "slurm_"), name == "slurm_error", name == "slurm_info":
		case kind == "w":
			weak++
		default:
			t.Errorf("%s has symbol type %s, want w: the plugin cannot load without the client library", name, kind)
		}
	}
	if weak == 0 {
		t.Error("the test found no function of the client library: the test may have read the wrong file")
	}
}

// banned gives, for each package that the Go object must not import, the reason.
var banned = map[string]string{
	"os/exec":                          "Slurm kills the child processes of a prolog when the prolog returns",
	"os/signal":                        "Slurm handles the signals of the process",
	"github.com/NVIDIA/go-nvml":        "only the agent uses NVML, which also requires lazy binding",
	"github.com/mattn/go-sqlite3":      "only the agent uses the ledger",
	"github.com/spf13/viper":           "the plugin's settings are in plugstack.conf",
	"github.com/sirupsen/logrus":       "the plugin logs with slurm_error",
	"caelum/internal/node/ledger":      "only the agent uses the ledger",
	"caelum/internal/node/gpu":         "only the agent uses the hardware",
	"github.com/coreos/go-systemd/v22": "a prolog communicates only with the agent",
}

func TestGoObjectImports(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "../job").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	deps := strings.Fields(string(out))
	if !slices.Contains(deps, "caelum/internal/node/api") {
		t.Fatal("the list of packages does not contain internal/node/api: the list is not the list of the Go object")
	}
	for _, d := range deps {
		for b, why := range banned {
			if d == b || strings.HasPrefix(d, b+"/") {
				t.Errorf("spank/job imports %s: %s", d, why)
			}
		}
		if domain, _, _ := strings.Cut(d, "/"); strings.Contains(domain, ".") {
			t.Errorf("spank/job imports %s: only the standard library and internal/node/api are allowed", d)
		}
	}
}
