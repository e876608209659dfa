// Package fuzz fuzzes the parsers of the agent's files and of bindings of tasks to GPUs. The seed inputs, and the
// inputs for which fuzzing found defects, are in testdata. The test processes each of these files with gcc's
// sanitizers; `make fuzz` searches for more inputs.
package fuzz

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

func TestLeaseCases(t *testing.T) {
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("needs gcc")
	}
	cases, err := filepath.Glob("testdata/lease/*")
	if err != nil || len(cases) == 0 {
		t.Fatalf("no cases (%v)", err)
	}
	// go test uses a cached result unless a file that the test itself opened has changed, so the test opens the source
	// files.
	sources := []string{
		"Makefile", "c/lease_fuzz.c", "../lease.c", "../text.c", "../devices.c", "../slots.c", "../bind.c",
	}
	headers, _ := filepath.Glob("../*.h")
	for _, name := range slices.Concat(sources, headers) {
		if _, err := os.ReadFile(name); err != nil {
			t.Fatal(err)
		}
	}
	const replay = "../../build/fuzz/lease_replay"
	build := exec.Command("make", "-s", "replay", "B=../../build")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, name := range cases {
		t.Run(filepath.Base(name), func(t *testing.T) {
			if _, err := os.ReadFile(name); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.Command(replay, name).CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
