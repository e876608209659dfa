package harness

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// built is the directory with the plugin, the Go object and the test programs. If it is empty, missing describes the
// missing prerequisite.
var built, missing string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "caelum-spank")
	if err != nil {
		panic(err)
	}
	code := 1
	if err := build(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
	} else {
		code = m.Run()
	}
	os.RemoveAll(dir)
	os.Exit(code)
}

// build runs the Makefile, and copies the plugin and the programs into dir. Without a C compiler or Slurm's headers, it
// sets missing, and the tests are skipped. Every other failure is an error.
func build(dir string) error {
	if _, err := exec.LookPath("gcc"); err != nil {
		missing = "needs gcc"
		return nil
	}
	if exec.Command("sh", "-c", "echo '#include <slurm/spank.h>' | gcc -E - >/dev/null").Run() != nil {
		missing = "needs Slurm's headers (libslurm-dev)"
		return nil
	}
	const from = "../../build/"
	for _, step := range []string{
		"make -s B=" + from,
		"cp " + from + "spank_caelum.so " + from + "libcaelum_spank.so " + from + "harness/* " + dir,
		"cp " + dir + "/old.so " + dir + "/open.so && chmod 666 " + dir + "/open.so",
		"mkdir " + dir + "/shared && cp " + dir + "/old.so " + dir + "/shared && chmod 1777 " + dir + "/shared && " +
			"ln -s shared/old.so " + dir + "/link.so",
	} {
		if out, err := exec.Command("sh", "-c", step).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", step, err, out)
		}
	}
	built = dir
	return nil
}

// program returns the path of a program that build has compiled. It skips the test if the machine lacks a prerequisite.
func program(t *testing.T, name string) string {
	t.Helper()
	sources()
	if built == "" {
		t.Skip(missing)
	}
	return filepath.Join(built, name)
}

// sources opens the files from which build compiles, because go test's cache considers only files that the test itself
// opens.
var sources = sync.OnceFunc(func() {
	for _, pattern := range []string{"Makefile", "c/*", "../Makefile", "../*.[ch]", "../*.map", "../job/*"} {
		names, _ := filepath.Glob(pattern)
		if len(names) == 0 {
			panic("no file matches " + pattern)
		}
		for _, name := range names {
			if _, err := os.ReadFile(name); err != nil {
				panic(err)
			}
		}
	}
})
