package learn

import (
	"cmp"
	"slices"

	"caelum/internal/core/predict"
)

// share returns the newest lines in their original order: at most room lines, with at most the given total number of
// bytes. The lines are shared equally among owners: share removes the oldest lines of the owners with the most lines,
// so an owner whose lines fit into an equal share does not lose any.
func share(lines []learnedLine, room, bytes int) []learnedLine {
	nth := make([]int, len(lines)) // for each line, its position among the lines of its owner
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
	low, high := 0, len(lines) // binary search for the largest number of lines per owner that fits
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
		// The remaining space is too small for one more line from each owner, so it is used for the newest of their
		// next lines.
		if size := len(l.text()); nth[i] == low && left > 0 && leftBytes >= size {
			left, leftBytes = left-1, leftBytes-size
		} else if nth[i] >= low {
			continue
		}
		kept = append(kept, l)
	}
	return kept
}

// byAge sorts the lines by age, newest first. If two lines have the same age, the more general line comes first.
func byAge(lines []learnedLine) {
	slices.SortFunc(lines, func(a, b learnedLine) int {
		return cmp.Or(
			cmp.Compare(b.last, a.last),
			cmp.Compare(slices.Index(predict.Levels, b.kind), slices.Index(predict.Levels, a.kind)),
			cmp.Compare(a.subject, b.subject),
		)
	})
}
