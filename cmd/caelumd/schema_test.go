package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"caelum/internal/controller/repo"
	"caelum/internal/node/ledger"
)

// TestSchema compares this release's databases with the lines of other releases. The ledger is open during the
// comparison, as it is while the agent is running.
func TestSchema(t *testing.T) {
	dir := t.TempDir()
	config := filepath.Join(dir, "caelum.yaml")
	text := fmt.Sprintf("state_dir: %s\nrepo: %s/repo.db\n", dir, dir)
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	own, err := run(t, "schema")
	own = strings.TrimSpace(own)
	if want := fmt.Sprintf("ledger=%d,repository=%d", ledger.Supports(), repo.Supports()); err != nil || own != want {
		t.Fatalf("schema returned %q, %v; want %q", own, err, want)
	}
	check := func(line, want string) {
		t.Helper()
		_, err := run(t, "schema", "--config", config, "--supported", line)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("schema --supported %s returned the error %v, want %q", line, err, want)
		}
	}
	check("ledger=0,repository=0", "") // no database exists yet
	l, err := ledger.Open(filepath.Join(dir, "ledger.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	r, err := repo.Open(filepath.Join(dir, "repo.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	check(own, "")
	check(fmt.Sprintf("ledger=%d,repository=%d", ledger.Supports()+1, repo.Supports()+1), "")
	check(fmt.Sprintf("ledger=%d,repository=%d", ledger.Supports()-1, repo.Supports()), "the ledger "+dir)
	check(fmt.Sprintf("ledger=%d,repository=%d", ledger.Supports(), repo.Supports()-1), "the repository "+dir)
	check("ledger", "contains no version")
	if err := os.WriteFile(filepath.Join(dir, "repo.db"), bytes.Repeat([]byte("text"), 200), 0o600); err != nil {
		t.Fatal(err)
	}
	check(own, "")
}
