package jobsubmit

import (
	"crypto/sha256"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// scriptBytes is how many bytes of a script job_submit.lua hashes.
const scriptBytes = 4096

// fingerprint runs bench/sha256.lua. It returns the digest of scriptBytes bytes and the median time of one hash in
// microseconds. ok is false if the Lua version does not support the hash function.
func fingerprint(tb testing.TB, lua, hash string, rounds int) (digest string, micros float64, ok bool) {
	tb.Helper()
	out, err := exec.Command(lua, "bench/sha256.lua", hash, strconv.Itoa(scriptBytes), strconv.Itoa(rounds)).
		CombinedOutput()
	if err != nil {
		tb.Fatalf("%s: %v: %s", lua, err, out)
	}
	digest, text, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	if strings.HasPrefix(digest, "not in ") {
		return "", 0, false
	}
	if micros, err = strconv.ParseFloat(text, 64); err != nil {
		tb.Fatalf("%s: %q", lua, out)
	}
	return digest, micros, true
}

// TestSHA256 checks that the function that BenchmarkFingerprint measures computes SHA-256.
func TestSHA256(t *testing.T) {
	want := fmt.Sprintf("%x", sha256.Sum256([]byte(strings.Repeat("x", scriptBytes))))
	for _, lua := range []string{"lua5.1", "lua5.3", "lua5.4"} {
		for _, hash := range []string{"tables", "native"} {
			if got, _, ok := fingerprint(t, lua, hash, 1); got != want && (ok || lua != "lua5.1") {
				t.Errorf("%s, %s: %s, want %s", lua, hash, got, want)
			}
		}
	}
}

// BenchmarkFingerprint measures candidate hashes for script fingerprints.
//
//	go test -run - -bench Fingerprint -benchtime 300x ./spank/submit
func BenchmarkFingerprint(b *testing.B) {
	for _, lua := range []string{"lua5.1", "lua5.3", "lua5.4"} {
		for _, hash := range []string{"polynomial", "tables", "native"} {
			b.Run(lua+"/"+hash, func(b *testing.B) {
				_, micros, ok := fingerprint(b, lua, hash, b.N)
				if !ok {
					b.Skip("the Lua version has no bit operators")
				}
				b.ReportMetric(micros, "median-us")
			})
		}
	}
}

// BenchmarkArguments measures a submission without arguments and one with 64 arguments of 256 bytes.
//
//	go test -run - -bench Arguments -benchtime 300x ./spank/submit
func BenchmarkArguments(b *testing.B) {
	table := b.TempDir() + "/decisions"
	writeTable(b, table, oracleTable)
	for _, lua := range []string{"lua5.1", "lua5.4"} {
		for _, n := range []string{"0", "64"} {
			b.Run(lua+"/"+n, func(b *testing.B) {
				cmd := exec.Command(lua, "bench/args.lua", "job_submit.lua", n, "256", strconv.Itoa(b.N))
				cmd.Env = append(cmd.Environ(), "CAELUM_DECISIONS="+table)
				out, err := cmd.CombinedOutput()
				if err != nil {
					b.Fatalf("%v: %s", err, out)
				}
				micros, err := strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(micros, "median-us")
			})
		}
	}
}
