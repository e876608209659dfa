package slurm

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// maxHosts is the maximum number of names that ExpandHosts returns for one hostlist, because even a short hostlist
// can stand for a very large number of names.
const maxHosts = 1 << 16

// ExpandHosts returns the names in a Slurm hostlist, such as "n[1-3,07],login1,r[0-1]c[0-3]", in the given order. As in
// Slurm, numbers with leading zeros have a fixed width. For "" and "(null)", the result is empty.
func ExpandHosts(s string) ([]string, error) {
	if isNull(s) {
		return nil, nil
	}
	var hosts []string
	depth, start := 0, 0
	for i := 0; i <= len(s); i++ {
		switch {
		case i == len(s) || s[i] == ',' && depth == 0:
			more, err := expandOne(s[start:i], maxHosts-len(hosts))
			if err != nil {
				return nil, fmt.Errorf("hostlist %.80q: %w", s, err)
			}
			hosts = append(hosts, more...)
			start = i + 1
		case s[i] == '[':
			depth++
		case s[i] == ']':
			depth--
		}
	}
	return hosts, nil
}

// expandOne expands one word, which may contain several pairs of brackets.
func expandOne(word string, room int) ([]string, error) {
	hosts := []string{""}
	for word != "" {
		lit, rest, found := strings.Cut(word, "[")
		if bad := strings.IndexFunc(lit, notHostRune); bad >= 0 {
			return nil, fmt.Errorf("a host name contains the invalid character %q", lit[bad])
		}
		nums := []string{""}
		if found {
			list, after, closed := strings.Cut(rest, "]")
			if !closed {
				return nil, fmt.Errorf("the closing bracket is missing")
			}
			var err error
			if nums, err = expandRanges(list, room); err != nil {
				return nil, err
			}
			rest = after
		}
		if len(hosts)*len(nums) > room {
			return nil, fmt.Errorf("it contains more than %d hosts", maxHosts)
		}
		next := make([]string, 0, len(hosts)*len(nums))
		for _, h := range hosts {
			for _, n := range nums {
				next = append(next, h+lit+n)
			}
		}
		hosts, word = next, rest
	}
	if hosts[0] == "" {
		return nil, fmt.Errorf("a host name is empty")
	}
	if room < len(hosts) {
		return nil, fmt.Errorf("it contains more than %d hosts", maxHosts)
	}
	return hosts, nil
}

func notHostRune(r rune) bool {
	return !(r == '-' || r == '.' || r == '_' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z')
}

func expandRanges(list string, room int) ([]string, error) {
	var nums []string
	for part := range strings.SplitSeq(list, ",") {
		lo, hi, ranged := strings.Cut(part, "-")
		if !ranged {
			hi = lo
		}
		a, err1 := strconv.ParseUint(lo, 10, 32)
		b, err2 := strconv.ParseUint(hi, 10, 32)
		if err1 != nil || err2 != nil || b < a {
			return nil, fmt.Errorf("%q is not a range of numbers such as 1-3", part)
		}
		if b-a >= uint64(room) || len(nums)+int(b-a) >= room {
			return nil, fmt.Errorf("it contains more than %d hosts", maxHosts)
		}
		for n := a; n <= b; n++ {
			nums = append(nums, fmt.Sprintf("%0*d", len(lo), n))
		}
	}
	return nums, nil
}

// numbered matches a host name that ends in a number.
var numbered = regexp.MustCompile(`^(.*?)([0-9]{1,9})$`)

// FoldHosts returns a hostlist for the names, in which consecutive numbers are ranges. ExpandHosts returns the names in
// the same order.
func FoldHosts(hosts []string) string {
	var words []string
	prefix, ranges := "", []string(nil)
	flush := func() {
		list := strings.Join(ranges, ",")
		if strings.ContainsAny(list, ",-") {
			list = "[" + list + "]"
		}
		if prefix+list != "" {
			words = append(words, prefix+list)
		}
		ranges = nil
	}
	for i := 0; i < len(hosts); {
		name, digits := hosts[i], ""
		if m := numbered.FindStringSubmatch(hosts[i]); m != nil {
			name, digits = m[1], m[2]
		}
		if name != prefix || digits == "" || ranges == nil {
			flush()
			prefix = name
		}
		first, _ := strconv.Atoi(digits)
		last := first
		for i++; digits != "" && i < len(hosts) && hosts[i] == fmt.Sprintf("%s%0*d", name, len(digits), last+1); i++ {
			last++
		}
		if last > first {
			digits = fmt.Sprintf("%s-%0*d", digits, len(digits), last)
		}
		if digits != "" {
			ranges = append(ranges, digits)
		}
	}
	flush()
	return strings.Join(words, ",")
}
