package learn

import (
	"cmp"
	"slices"
)

// share returns the lines that fit into so many lines and bytes, in the order in which they came: newest first. Owners
// keep equal shares: lines are dropped from the owner with the most, the oldest first. So an owner who has no more than
// an equal share of the room loses none to the others.
func share(lines []learnedLine, room, bytes int) []learnedLine {
	nth := make([]int, len(lines)) // of its owner's
	owners := map[int64]int{}
	for i, l := range lines {
		nth[i] = owners[l.owner]
		owners[l.owner]++
	}
	fits := func(each int) (left, leftBytes int, ok bool) {
		left, leftBytes = room, bytes
		for i, l := range lines {
			if nth[i] < each {
				left--
				leftBytes -= len(l.text())
			}
		}
		return left, leftBytes, left >= 0 && leftBytes >= 0
	}
	low, high := 0, len(lines) // the greatest share that fits is in between
	for low < high {
		middle := (low + high + 1) / 2
		if _, _, ok := fits(middle); ok {
			low = middle
		} else {
			high = middle - 1
		}
	}
	left, leftBytes, _ := fits(low)
	var kept []learnedLine
	for i, l := range lines {
		// What is left over is less than a line for each owner: the newest of the next lines get it.
		if size := len(l.text()); nth[i] == low && left > 0 && leftBytes >= size {
			left, leftBytes = left-1, leftBytes-size
		} else if nth[i] >= low {
			continue
		}
		kept = append(kept, l)
	}
	return kept
}

// byAge sorts lines newest first, so that none comes before one that it falls back on.
func byAge(lines []learnedLine) {
	slices.SortFunc(lines, func(a, b learnedLine) int {
		return cmp.Or(cmp.Compare(b.last, a.last), cmp.Compare(rank[a.kind], rank[b.kind]), cmp.Compare(a.who, b.who))
	})
}
