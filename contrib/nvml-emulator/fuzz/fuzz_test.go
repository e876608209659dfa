// Package fuzz keeps what fuzzing the emulator's state file has found, and some good machines: every file of testdata
// runs here with gcc's sanitizers. `make fuzz` looks for more.
package fuzz

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

func TestStateCases(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: NVML lets nobody else change instances")
	}
	cases, err := filepath.Glob("testdata/state/*")
	if err != nil || len(cases) == 0 {
		t.Fatalf("no cases (%v)", err)
	}
	// go test takes an answer from its cache unless a file that the test itself opened has changed.
	for _, pattern := range []string{"Makefile", "c/*", "../src/*", "../../../internal/mig/models.txt"} {
		names, _ := filepath.Glob(pattern)
		if len(names) == 0 {
			t.Fatalf("no %s", pattern)
		}
		for _, name := range names {
			if _, err := os.ReadFile(name); err != nil {
				t.Fatal(err)
			}
		}
	}
	dir := t.TempDir()
	if out, err := exec.Command("make", "-s", "-j2", "program", "CC=gcc", "ENGINE=-DREPLAY", "OPT=-O0", "B="+dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, name := range cases {
		t.Run(filepath.Base(name), func(t *testing.T) {
			if _, err := os.ReadFile(name); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.Command(filepath.Join(dir, "fuzz", "gcc", "state_fuzz"), name).CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
