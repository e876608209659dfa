// Package fuzz keeps what fuzzing the lease file's parser has found, and the seeds it starts from: every file of testdata
// runs here with gcc's sanitizers. `make fuzz` looks for more.
package fuzz

import (
	"os"
	"os/exec"
	"path/filepath"
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
	// go test takes an answer from its cache unless a file that the test itself opened has changed.
	for _, name := range []string{"c/lease_fuzz.c", "../lease.c", "../lease.h", "../slots.c", "../slots.h", "../number.h"} {
		if _, err := os.ReadFile(name); err != nil {
			t.Fatal(err)
		}
	}
	replay := filepath.Join(t.TempDir(), "replay")
	build := exec.Command("gcc", "-std=gnu11", "-g", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-Wno-format-truncation", "-DREPLAY",
		"-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-o", replay, "c/lease_fuzz.c", "../lease.c", "../slots.c")
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
