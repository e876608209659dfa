package learn

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"caelum/internal/predict"
)

// TestShare: the lines fit and the room is used. An owner with at most an equal share loses no line. Of the other
// owners, the oldest lines are dropped, and none of them keeps more than one line more than another that lost lines.
func TestShare(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 500 {
		owners := 1 + random.IntN(8)
		var lines []learnedLine
		for owner := range owners {
			for i := range random.IntN(map[bool]int{true: 400, false: 30}[random.IntN(3) == 0]) {
				lines = append(lines, learnedLine{
					kind:     predict.Levels[random.IntN(2)],
					subject:  fmt.Sprintf("%d:%016x", owner, i),
					owner:    int64(owner),
					decision: decision{profile: "1g.5gb"},
					last:     int64(random.IntN(1000)),
				})
			}
		}
		byAge(lines)
		room, bytes := random.IntN(500), 1<<20
		if random.IntN(3) == 0 {
			bytes = random.IntN(20000)
		}
		kept := share(lines, room, bytes)
		if again := share(lines, room, bytes); !slices.Equal(again, kept) {
			t.Fatal("two calls give different lines")
		}
		had, has, size := map[int64]int{}, map[int64]int{}, 0
		longest := 0
		for _, l := range lines {
			had[l.owner]++
			longest = max(longest, len(l.text()))
		}
		next := 0
		for _, l := range kept {
			has[l.owner]++
			size += len(l.text())
			for lines[next] != l { // the order must stay
				if next++; next == len(lines) {
					t.Fatal("a new line, or another order")
				}
			}
		}
		if len(kept) > room || size > bytes {
			t.Fatalf("%d lines of %d bytes, with room for %d lines and %d bytes", len(kept), size, room, bytes)
		}
		if len(kept) < min(len(lines), room) && size <= bytes-longest {
			t.Fatalf("%d of %d lines, with room for %d, and %d of %d bytes", len(kept), len(lines), room, size, bytes)
		}
		equal := min(room, bytes/max(longest, 1)) / max(len(had), 1)
		least := len(lines)
		for owner := range had {
			if has[owner] < had[owner] {
				least = min(least, has[owner])
				if had[owner] <= equal {
					t.Fatalf("owner %d had %d lines, an equal share is %d, and %d are left",
						owner, had[owner], equal, has[owner])
				}
			}
		}
		for owner := range had {
			if has[owner] > least+1 {
				t.Fatalf("owner %d keeps %d lines, and another that lost lines keeps %d", owner, has[owner], least)
			}
			of := func(all []learnedLine) []learnedLine {
				return slices.DeleteFunc(slices.Clone(all), func(l learnedLine) bool { return l.owner != owner })
			}
			if mine := of(lines)[:has[owner]]; !slices.Equal(mine, of(kept)) {
				t.Fatalf("owner %d lost lines other than the oldest", owner)
			}
		}
	}
}
