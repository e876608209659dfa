package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"caelum/internal/node/gpu/gputest"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"caelumd": main})
}

// TestScripts runs testdata/*.txtar. The scripts check the error messages of an agent that cannot start, on a node with
// an emulated A100 and without slurmctld.
func TestScripts(t *testing.T) {
	node := gputest.New(t, "A100-40GB", 1)
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(env *testscript.Env) error {
			env.Setenv("GORACE", "atexit_sleep_ms=0")
			env.Setenv("NVML_EMULATOR_STATE", node.State)
			env.Setenv("NVML", filepath.Join(node.Build(), "libnvidia-ml.so.1"))
			env.Setenv("DEV", node.Dev)
			// If slurm.conf is invalid, Slurm's commands fail immediately. If it does not exist, they try for several
			// seconds to get a configuration.
			conf := filepath.Join(env.WorkDir, "slurm.conf")
			env.Setenv("SLURM_CONF", conf)
			return os.WriteFile(conf, []byte("none\n"), 0o644)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"expand": expand, "refused": refused},
	})
}

// refused implements the scripts' "refused CONFIG TEXT" command. The agent must end with exit status 1 and print
// exactly one line, which contains TEXT.
func refused(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: refused CONFIG TEXT")
	}
	err := ts.Exec("caelumd", "--config", args[0])
	if e, ok := err.(interface{ ExitCode() int }); !ok || e.ExitCode() != 1 {
		ts.Fatalf("caelumd returned %v, want exit status 1", err)
	}
	text := ts.ReadFile("stderr")
	if strings.Count(text, "\n") != 1 || !strings.HasSuffix(text, "\n") || !strings.Contains(text, args[1]) {
		ts.Fatalf("caelumd printed %q, want one line with %q", text, args[1])
	}
}

// expand implements the scripts' "expand FILE" command, which replaces the environment variables in FILE with their
// values.
func expand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: expand FILE")
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(os.Expand(ts.ReadFile(args[0]), ts.Getenv)), 0o644))
}
