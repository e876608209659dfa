package slurm

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// isNull reports whether s is a string that Slurm prints for a missing value. It cannot tell whether the same string
// was written by a user instead.
func isNull(s string) bool { return s == "" || s == "(null)" || s == "N/A" }

func orEmpty(s string) string {
	if isNull(s) {
		return ""
	}
	return s
}

func list(s string) []string {
	if isNull(s) {
		return nil
	}
	return strings.Split(s, ",")
}

// parseTime parses a time that scontrol or squeue prints with SLURM_TIME_FORMAT=%s. It returns the zero time for a
// missing time.
func parseTime(s string) (time.Time, error) {
	switch s {
	case "", "(null)", "N/A", "NONE", "None", "Unknown":
		return time.Time{}, nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf(
			"the time %.40q is not a number of seconds: the command ignored SLURM_TIME_FORMAT",
			s,
		)
	}
	return time.Unix(n, 0), nil
}

// maxLimit is the longest time limit, in seconds: 100 years. Where no limit of the site applies, a user can set one of
// 8,000 years, which a time.Duration cannot represent.
const maxLimit = 100 * 365 * 86400

// ParseLimit parses a time limit that squeue prints in the form [D-][H:]MM:SS. It returns 0 if the job has no time
// limit, and at most maxLimit.
func ParseLimit(s string) (time.Duration, error) {
	if isNull(s) || s == "UNLIMITED" || s == "NOT_SET" || s == "Partition_Limit" {
		return 0, nil
	}
	bad := fmt.Errorf("the time limit %.40q does not have the form [D-][H:]MM:SS", s)
	days, rest, ok := strings.Cut(s, "-")
	if !ok {
		days, rest = "0", s
	}
	d, err := strconv.ParseUint(days, 10, 20)
	if err != nil {
		return 0, bad
	}
	parts := strings.Split(rest, ":")
	if len(parts) < 2 || len(parts) > 3 {
		return 0, bad
	}
	secs := uint64(0)
	for _, p := range parts {
		n, err := strconv.ParseUint(p, 10, 20)
		if err != nil {
			return 0, bad
		}
		secs = secs*60 + n
	}
	return time.Duration(min(d*86400+secs, maxLimit)) * time.Second, nil
}

// parseCount32 parses an unsigned number. It returns 0 for the two highest values, which Slurm uses for "not set" and
// "unlimited".
func parseCount32(s string) (int, error) {
	if isNull(s) {
		return 0, nil
	}
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("%.40q is not a number", s)
	}
	if n >= 0xfffffffe {
		return 0, nil
	}
	return int(n), nil
}

func sameTime(s string, t time.Time) bool {
	u, err := parseTime(s)
	return err == nil && u.Equal(t)
}

func parseNice(s string) (int64, error) {
	if isNull(s) {
		return 0, nil
	}
	return strconv.ParseInt(s, 10, 64)
}

// tresMemory returns the memory in MiB in a list such as "cpu=2,mem=400000M,node=2", or 0 if memory is not in the
// list.
func tresMemory(s string) (int, error) {
	for item := range strings.SplitSeq(s, ",") {
		text, ok := strings.CutPrefix(item, "mem=")
		if !ok {
			continue
		}
		n, err := mebibytes(text)
		if err != nil {
			return 0, fmt.Errorf("%.40q does not contain an amount of memory", item)
		}
		return n, nil
	}
	return 0, nil
}

// mebibytes parses a size in Slurm's format, such as 400000M or 1.50T, and returns it in MiB. A bare number is in
// MiB.
func mebibytes(s string) (int, error) { return scaled(s, []string{"K", "M", "G", "T", "P"}, 1.0/1024) }

// parseUnits parses a number that squeue may have abbreviated, such as 2K for 2048 CPUs.
func parseUnits(s string) (int, error) { return scaled(s, []string{"", "K", "M", "G", "T"}, 1) }

// scaled parses a number with one of the given suffixes. The first suffix stands for the factor given by first, and
// each further suffix stands for 1024 times the factor of the suffix before it.
func scaled(s string, suffixes []string, first float64) (int, error) {
	text, unit := s, 1.0
	for k, suffix := range suffixes {
		if number, ok := strings.CutSuffix(s, suffix); ok && suffix != "" {
			text, unit = number, first*math.Pow(1024, float64(k))
		}
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || !(n >= 0 && n*unit < 1e15) {
		return 0, fmt.Errorf("%.40q is not a number", s)
	}
	return int(n * unit), nil
}
