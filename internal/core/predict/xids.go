package predict

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// maxXids limits the number of different Xid errors in a run's summary, which is stored in the job's accounting record.
// A job rarely has more than three.
const maxXids = 8

// xidsForm is the form of Run.Xids.
var xidsForm = regexp.MustCompile(`^[0-9]{1,4}(x[0-9]{1,9})?([+][0-9]{1,4}(x[0-9]{1,9})?)*$`)

// parseXids parses Run.Xids in a summary, regardless of case. It returns an empty string if the value is malformed.
func parseXids(text string) string {
	if xids := strings.ToLower(text); xidsForm.MatchString(xids) {
		return xids
	}
	return ""
}

// AddXid adds an Xid error to the value of Run.Xids.
func AddXid(xids string, code int) string {
	codes, counts := ParseXids(xids)
	k := slices.Index(codes, code)
	switch {
	case k >= 0:
		counts[k] = min(counts[k]+1, 999999999)
	case len(codes) < maxXids:
		codes, counts = append(codes, code), append(counts, 1)
	}
	parts := make([]string, len(codes))
	for k := range codes {
		if parts[k] = strconv.Itoa(codes[k]); counts[k] > 1 {
			parts[k] += fmt.Sprintf("x%d", counts[k])
		}
	}
	return strings.Join(parts, "+")
}

// ParseXids returns the codes of the Xid errors in the value of Run.Xids, in the order of their first occurrence, and
// the number of each. It returns nothing if the value is malformed.
func ParseXids(xids string) (codes, counts []int) {
	if !xidsForm.MatchString(xids) {
		return nil, nil
	}
	for part := range strings.SplitSeq(xids, "+") {
		code, count, several := strings.Cut(part, "x")
		n, times := 0, 1
		n, _ = strconv.Atoi(code)
		if several {
			times, _ = strconv.Atoi(count)
		}
		codes, counts = append(codes, n), append(counts, times)
	}
	return codes, counts
}
