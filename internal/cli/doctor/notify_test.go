package doctor

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"caelum/internal/config"
)

// TestNotifyPort tests that the "wake port" check returns a warning if a port is set and the key file has the wrong
// owner or mode, or is missing although Slurm does not use munge. The remedy must include the command that creates the
// key.
func TestNotifyPort(t *testing.T) {
	path := filepath.Join(t.TempDir(), "wake.key")
	me := strconv.Itoa(os.Geteuid())
	deaf, auth := "", "auth/munge"
	judge := func(port int, slurmUser string) string {
		f := healthy()
		f.Controller = true
		f.Agent.Deaf = deaf
		f.Config.Values["AuthType"] = auth
		f.Config.Values["SlurmUser"] = "slurm(" + slurmUser + ")"
		f.Notify = readNotify(config.Config{NotifyPort: port, NotifyKey: path})
		for _, found := range Examine(f) {
			if found.Check == "wake port" {
				return string(found.Severity) + ": " + found.Text + found.Next
			}
		}
		return ""
	}
	want := func(state, got, text string) {
		t.Helper()
		if !strings.Contains(got, text) {
			t.Errorf("%s: %q, want %q", state, got, text)
		}
	}
	want("no port", judge(0, me), "ok:")
	want("no key, but munge", judge(6873, me), "ok:")
	deaf = "port in use"
	want("munge and deaf", judge(6873, me), "warning: the agent could not open the wake port, so jobs wait")
	deaf, auth = "", "auth/slurm"
	want("no key", judge(6873, me), "warning: the wake port is not open")
	want("no key", judge(6873, me), `AuthType is "auth/slurm"`)
	want("no key", judge(6873, me), "head -c 32 /dev/urandom >"+path)
	if err := os.WriteFile(path, []byte(strings.Repeat("k", 32)), 0o400); err != nil {
		t.Fatal(err)
	}
	want("right owner and mode", judge(6873, me), "ok:")
	deaf = "port in use"
	want("deaf", judge(6873, me), "warning: the agent could not open the wake port, so jobs wait")
	deaf = ""
	want("wrong owner", judge(6873, "4711"), "chown 4711")
	os.Chmod(path, 0o404)
	want("readable by others", judge(6873, me), "chmod 400")
}
