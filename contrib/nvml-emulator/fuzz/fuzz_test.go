// Package fuzz tests the emulator with damaged state files. The inputs for the fuzz target are in testdata; most were
// found by fuzzing, and some hold valid machines. The test runs the fuzz target on every file in testdata with gcc's
// sanitizers. `make fuzz` searches for more inputs.
package fuzz

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

func TestStateCases(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, because only root may change instances")
	}
	cases, err := filepath.Glob("testdata/state/*")
	if err != nil || len(cases) == 0 {
		t.Fatalf("testdata/state contains no inputs (%v)", err)
	}
	// go test's cache considers only files that the test itself opens, so the test opens the source files.
	for _, pattern := range []string{"Makefile", "c/*", "../src/*", "../../../internal/core/mig/models.txt"} {
		names, _ := filepath.Glob(pattern)
		if len(names) == 0 {
			t.Fatalf("no file matches %s", pattern)
		}
		for _, name := range names {
			if _, err := os.ReadFile(name); err != nil {
				t.Fatal(err)
			}
		}
	}
	const dir = "../../../build"
	build := exec.Command("make", "-s", "-j2", "program", "CC=gcc", "ENGINE=-DREPLAY", "OPT=-O0", "B="+dir)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, name := range cases {
		t.Run(filepath.Base(name), func(t *testing.T) {
			if _, err := os.ReadFile(name); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.Command(filepath.Join(dir, "fuzz", "gcc", "state_fuzz"),
				name).CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
