// Package jobsubmit tests job_submit.lua. The test cases in test.lua run under every Lua version that slurmctld can be
// built with.
package jobsubmit

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

func TestJobSubmit(t *testing.T) {
	for _, lua := range []string{"lua5.1", "lua5.2", "lua5.3", "lua5.4"} {
		t.Run(lua, func(t *testing.T) {
			path, err := exec.LookPath(lua)
			if err != nil {
				t.Fatalf("couldn't find %s: %v; install all four Lua versions", lua, err)
			}
			table := filepath.Join(t.TempDir(), "decisions")
			cmd := exec.Command(
				path, "test.lua", "job_submit.lua", table, "../../internal/core/predict/testdata/keys.txt",
			)
			cmd.Env = append(os.Environ(), "CAELUM_DECISIONS="+table, "CAELUM_POKE="+filepath.Join(t.TempDir(), "poke"))
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			t.Logf("%s", out)
		})
	}
}
