package harness

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func shell(t *testing.T, script string, args ...string) string {
	t.Helper()
	out, err := exec.Command("sh", append([]string{"-euc", script, "sh"}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
	return strings.TrimSpace(string(out))
}

// newPrefix returns a directory with Slurm's headers in include and its libraries in lib and lib/slurm, like the prefix
// of a Slurm that was built from source.
func newPrefix(t *testing.T) string {
	t.Helper()
	program(t, "spank_caelum.so")
	prefix := t.TempDir()
	shell(t, `mkdir -p "$1/include" "$1/lib/slurm"
		spank=$(echo '#include <slurm/spank.h>' | gcc -x c -M - | grep -o '[^ ]*/slurm/spank.h')
		cp -r "${spank%/spank.h}" "$1/include"
		cp -d "$(dirname "$(gcc -print-file-name=libslurm.so)")"/libslurm.so* "$1/lib"
		cp "$(find /usr/lib* -name libslurmfull.so -print -quit)" "$1/lib/slurm"`, prefix)
	return prefix
}

// TestOwnPrefix links caelum-show as docs/install.md describes it for a Slurm with a prefix of its own, and checks that
// the program loads only the library from there. Without --no-as-needed, Debian's linker would leave out a further
// library on the command line, unlike the linkers of other distributions.
func TestOwnPrefix(t *testing.T) {
	prefix := newPrefix(t)
	for dir, library := range map[string]string{"lib": "slurm", "lib/slurm": "slurmfull"} {
		t.Run(library, func(t *testing.T) {
			out, path := t.TempDir(), filepath.Join(prefix, dir)
			shell(t, `make -s -C .. B="$1" "$1/caelum-show" SLURM_CFLAGS="-I$2/include" SLURM_LDFLAGS="$3" \
				CFLAGS='-O0 -Wl,--no-as-needed'`, out, prefix, "-L"+path+" -Wl,-rpath,"+path+" -l"+library)
			needed := regexp.MustCompile(`libslurm\S* => \S+`).FindAllString(shell(t, `ldd "$1/caelum-show"`, out), -1)
			if len(needed) != 1 || !strings.Contains(needed[0], " => "+path+"/lib"+library+".so") {
				t.Errorf("caelum-show loads %q", needed)
			}
			usage := shell(t, `! "$1/caelum-show" 2>&1`, out)
			if !strings.HasPrefix(usage, "usage: caelum-show") {
				t.Error(usage)
			}
		})
	}
}

// TestHeadersChange checks that make builds the plugin and caelum-show again if Slurm's headers change, even if they
// are older than the built files, like those of an upgraded package.
func TestHeadersChange(t *testing.T) {
	prefix, out := newPrefix(t), t.TempDir()
	build := func() (all [2][]byte) {
		shell(t, `make -s -C .. B="$1" "$1/spank_caelum.so" "$1/caelum-show" SLURM_CFLAGS="-I$2/include" \
			CFLAGS=-O0`, out, prefix)
		for k, name := range []string{"spank_caelum.so", "caelum-show"} {
			path := filepath.Join(out, name)
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			all[k] = text
			// If make does not build the file again, the test finds the additional byte.
			if err := os.WriteFile(path, append(text, 'x'), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		return all
	}
	kept := func(before, after [2][]byte) (n int) {
		for k := range before {
			if bytes.Equal(append(before[k], 'x'), after[k]) {
				n++
			}
		}
		return n
	}
	first := build()
	second := build()
	if kept(first, second) != 2 {
		t.Error("the headers have not changed, and make has built the files again")
	}
	shell(t, `sed -i 's/\(SLURM_VERSION_NUMBER 0x\)..../\1fe07/' "$1"; touch -d 2020-01-01 "$1"`,
		filepath.Join(prefix, "include/slurm/slurm_version.h"))
	third := build()
	if kept(second, third) != 0 {
		t.Error("the headers have changed, and make has not built the files again")
	}
	if bytes.Equal(first[0], third[0]) {
		t.Error("the plugin has the old version")
	}
}
