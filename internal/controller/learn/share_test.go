package learn

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"caelum/internal/core/predict"
)

// TestShare checks that the remaining lines stay within the limits and use the available room. An owner with at most an
// equal share must not lose any lines. The other owners must lose only their oldest lines, and the numbers of lines
// that they keep must differ by at most one.
func TestShare(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 500 {
		lines := randomLines(random)
		byAge(lines)
		room, bytes := random.IntN(500), 1<<20
		if random.IntN(3) == 0 {
			bytes = random.IntN(20000)
		}
		kept := share(lines, room, bytes)
		if again := share(lines, room, bytes); !slices.Equal(again, kept) {
			t.Fatal("two calls return different lines")
		}
		checkRoom(t, lines, kept, room, bytes)
		checkOwners(t, lines, kept, min(room, bytes/max(longest(lines), 1)))
	}
}

// randomLines returns lines of up to 8 owners, some of whom have many more lines than the others.
func randomLines(random *rand.Rand) (lines []learnedLine) {
	for owner := range 1 + random.IntN(8) {
		for i := range random.IntN(map[bool]int{true: 400, false: 30}[random.IntN(3) == 0]) {
			lines = append(lines, learnedLine{
				kind:    predict.Levels[random.IntN(2)],
				subject: fmt.Sprintf("%d:%016x", owner, i),
				owner:   int64(owner),
				Line:    predict.Line{Profile: "1g.5gb"},
				last:    int64(random.IntN(1000)),
			})
		}
	}
	return lines
}

// longest returns the length of the longest line in bytes.
func longest(lines []learnedLine) (bytes int) {
	for _, l := range lines {
		bytes = max(bytes, len(l.text()))
	}
	return bytes
}

// checkRoom checks that the remaining lines stay within the limits, use the available room, and are in the original
// order.
func checkRoom(t *testing.T, lines, kept []learnedLine, room, bytes int) {
	t.Helper()
	size, next := 0, 0
	for _, l := range kept {
		size += len(l.text())
		for lines[next] != l {
			if next++; next == len(lines) {
				t.Fatal("the result contains a new line, or the lines are in another order")
			}
		}
	}
	if len(kept) > room || size > bytes {
		t.Fatalf("%d lines with %d bytes exceed the limits of %d lines or %d bytes", len(kept), size, room, bytes)
	}
	if len(kept) < min(len(lines), room) && size <= bytes-longest(lines) {
		t.Fatalf("only %d of %d lines with a limit of %d, and %d of %d bytes", len(kept), len(lines), room, size, bytes)
	}
}

// checkOwners checks which lines each owner has lost. room is a number of lines that certainly fit.
func checkOwners(t *testing.T, lines, kept []learnedLine, room int) {
	t.Helper()
	had, has := map[int64][]learnedLine{}, map[int64][]learnedLine{}
	for _, l := range lines {
		had[l.owner] = append(had[l.owner], l)
	}
	for _, l := range kept {
		has[l.owner] = append(has[l.owner], l)
	}
	equal, least := room/max(len(had), 1), len(lines)
	for owner := range had {
		if len(has[owner]) == len(had[owner]) {
			continue
		}
		least = min(least, len(has[owner]))
		if len(had[owner]) <= equal {
			t.Fatalf("owner %d had %d lines, an equal share is %d lines, and %d lines remain",
				owner, len(had[owner]), equal, len(has[owner]))
		}
	}
	for owner, left := range has {
		if len(left) > least+1 {
			t.Fatalf("owner %d keeps %d lines, but another owner who lost lines keeps %d", owner, len(left), least)
		}
		if !slices.Equal(had[owner][:len(left)], left) {
			t.Fatalf("owner %d lost lines other than the oldest", owner)
		}
	}
}
