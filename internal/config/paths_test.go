package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestOptionalPaths loads valid and invalid values of the paths that may be empty. An empty error means that the
// value is valid.
func TestOptionalPaths(t *testing.T) {
	for line, want := range map[string]string{
		`job_map_dir: ""`:           "",
		`job_map_dir: /run/gpustat`: "",
		`job_map_dir: /run/caelum/jobs`: "job_map_dir: /run/caelum/jobs contains the agent's own files, which " +
			"the agent would delete; specify another directory, for example /run/caelum/jobmap",
		`job_map_dir: gpustat`:              `job_map_dir: "gpustat" is neither an absolute path nor "" (no job map)`,
		`destroy_hook: ""`:                  "",
		`destroy_hook: /etc/caelum/pause`:   "",
		`destroy_hook: systemctl stop dcgm`: `destroy_hook: "systemctl stop dcgm" is neither an absolute path`,
	} {
		path := filepath.Join(t.TempDir(), "caelum.yaml")
		if err := os.WriteFile(path, []byte("node: n1\n"+line+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		_, err := load(path, 1)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: Load returned %v, want %q", line, err, want)
		}
	}
}
