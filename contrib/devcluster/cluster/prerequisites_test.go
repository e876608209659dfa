package cluster

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestPrerequisites runs the prerequisites script with a dpkg-query that reports the same state for every package but
// one. Packages with pending or awaited triggers are usable, so the script does not report them.
func TestPrerequisites(t *testing.T) {
	dir := t.TempDir()
	for state, missing := range map[string]string{
		"installed": "", "triggers-pending": "", "triggers-awaited": "",
		"unpacked": "libc-bin", "not-installed": "libc-bin",
	} {
		stub := "#!/bin/bash\nfor p in \"${@:4}\"; do\n" +
			"[[ $p == libc-bin ]] && s=" + state + " || s=installed\necho \"$s $p\"\ndone\n"
		if err := os.WriteFile(filepath.Join(dir, "dpkg-query"), []byte(stub), 0o755); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("../prerequisites", "--check")
		cmd.Env = append(cmd.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		if missing == "" && (err != nil || len(out) > 0) ||
			missing != "" && (err == nil || !strings.Contains(string(out), "missing packages: "+missing+";")) {
			t.Errorf("%s: %v %s", state, err, out)
		}
	}
}
