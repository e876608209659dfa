package main

import (
	"bytes"
	"encoding/json"
	"testing"

	"caelum/internal/version"
)

// run runs caelumd with the given arguments in this process, and returns the command's standard output and its error.
func run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := command()
	cmd.SetOut(&out)
	cmd.SetArgs(args)
	err := cmd.Execute()
	return out.String(), err
}

func TestVersion(t *testing.T) {
	out, err := run(t, "version", "--json")
	var got version.Build
	if err != nil || json.Unmarshal([]byte(out), &got) != nil || got != version.Current() {
		t.Errorf("version --json returned %q, %v", out, err)
	}
	if out, err := run(t, "--version"); err != nil || out != "caelumd version "+version.Version+"\n" {
		t.Errorf("--version returned %q, %v", out, err)
	}
}
