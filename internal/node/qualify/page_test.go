package qualify

import (
	"os"
	"strings"
	"testing"
)

// TestDriverPage compares the assumptions with docs/driver.md: each has one row with the same text, and the page says
// "Blocks" and "not by qualify" for the same ones.
func TestDriverPage(t *testing.T) {
	data, err := os.ReadFile("../../../docs/driver.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string][]string{}
	for line := range strings.Lines(string(data)) {
		if !strings.HasPrefix(line, "| A") && !strings.HasPrefix(line, "| F") {
			continue
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		for k := range cells {
			cells[k] = strings.TrimSpace(cells[k])
			if len(cells[k]) >= 250 {
				t.Errorf("%s: a cell of %d characters", cells[0], len(cells[k]))
			}
		}
		if rows[cells[0]] != nil {
			t.Errorf("%s is listed twice", cells[0])
		}
		rows[cells[0]] = cells
	}
	if len(rows) != len(assumptions) {
		t.Errorf("the page has %d assumptions, want %d", len(rows), len(assumptions))
	}
	for _, a := range assumptions {
		cells := rows[a.id]
		switch {
		case len(cells) != 5:
			t.Errorf("%s: %d cells", a.id, len(cells))
		case cells[1] != a.text:
			t.Errorf("%s: the page says %q, want %q", a.id, cells[1], a.text)
		case strings.Contains(cells[3], "Blocks") != a.blocks:
			t.Errorf("%s: the page and the program differ on whether it blocks", a.id)
		case strings.HasPrefix(cells[4], "not by qualify") != (a.never != ""):
			t.Errorf("%s: the page and the program differ on whether it is checked", a.id)
		}
	}
}
