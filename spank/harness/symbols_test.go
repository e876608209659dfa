package harness

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// exported lists the dynamic symbols that an object defines.
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

// scripted lists the global symbols of a version script.
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
			t.Errorf("%s exports\n%v, its version script says\n%v", object, got, want)
		}
	}
}

// The plugin needs no Go: nothing but libc, and Slurm's functions left open.
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

// Only what plugins have always been given is needed; of Slurm's client library, what is not there is done without.
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
			t.Errorf("%s is %s: without it the plugin would not load", name, kind)
		}
	}
	if weak == 0 {
		t.Error("the plugin uses nothing of the client library: this test looks at the wrong file")
	}
}

// What the Go object may not reach, and why.
var banned = map[string]string{
	"os/exec":                          "children of a prolog are killed when it returns",
	"os/signal":                        "the process's signals are Slurm's",
	"github.com/NVIDIA/go-nvml":        "needs lazy binding of its own and belongs to the agent",
	"github.com/mattn/go-sqlite3":      "the ledger is the agent's",
	"github.com/spf13/viper":           "the plugin's settings stand in plugstack.conf",
	"github.com/sirupsen/logrus":       "slurm_error is the log",
	"caelum/internal/ledger":           "the ledger is the agent's",
	"caelum/internal/gpu":              "the hardware is the agent's",
	"github.com/coreos/go-systemd/v22": "a prolog talks to the agent only",
}

func TestGoObjectReachesOnlyTheSocket(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "../job").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	deps := strings.Fields(string(out))
	if !slices.Contains(deps, "caelum/internal/api") {
		t.Fatal("the list of packages is not the object's")
	}
	for _, d := range deps {
		for b, why := range banned {
			if d == b || strings.HasPrefix(d, b+"/") {
				t.Errorf("spank/job reaches %s: %s", d, why)
			}
		}
		if domain, _, _ := strings.Cut(d, "/"); strings.Contains(domain, ".") {
			t.Errorf("spank/job reaches %s: only the standard library and internal/api", d)
		}
	}
}
