package slurm

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// GRES is a count of one generic resource, for example {"mig", "2g.10gb", 1}. Type is empty for a GRES without types.
type GRES struct {
	Name, Type string
	Count      int
}

// String returns the GRES in the form that scontrol and sbatch accept, for example mig:2g.10gb:1.
func (g GRES) String() string {
	if g.Type == "" {
		return g.Name + ":" + strconv.Itoa(g.Count)
	}
	return g.Name + ":" + g.Type + ":" + strconv.Itoa(g.Count)
}

// countRE matches a count with its unit. Slurm interprets a number with a unit as a count, even where a type is
// expected (suffix_mult in Slurm's source). "2g.10gb" is a type because of its dot.
var countRE = regexp.MustCompile(`^([0-9]+)(?:([kKmMgGtTpP])([iI]?[bB])?)?$`)

// ParseGRES parses every form in which Slurm prints generic resources:
//
//	gpu:a100:14(S:0),mig:1g.5gb:0             Gres of a node
//	gpu:a100:1(IDX:0),mig:2g.10gb:1           GresUsed of a node; (IDX:N/A) if no unit is used
//	gpu:a100:1(IDX:4),mig:1g.5gb(CNT:1)       a job's share of a node (scontrol -d); CNT for a count-only GRES
//	gres:gpu:1,gres:mig:2g.10gb:1             a job's request, up to 23.02
//	gres/gpu:1, gres/mig:2g.10gb=1            a job's request in later releases, and TRES
//
// A missing count means 1. Units are powers of 1024 (100G, 100GiB) or of 1000 (100GB). For "(null)", "N/A" and "", the
// result is an empty list.
func ParseGRES(s string) (GRESList, error) {
	if isNull(s) {
		return nil, nil
	}
	items, err := splitGRES(s)
	if err != nil {
		return nil, err
	}
	var list GRESList
	for _, item := range items {
		g, err := parseOneGRES(item)
		if err != nil {
			return nil, fmt.Errorf("GRES %q: %w", s, err)
		}
		list = append(list, g)
	}
	return list, nil
}

// splitGRES splits a list at the commas outside parentheses; an index list (IDX:0-1,4) also contains commas.
func splitGRES(s string) ([]string, error) {
	var items []string
	depth, start := 0, 0
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '(':
			depth++
		case ')':
			depth--
		case ',':
			if depth == 0 {
				items = append(items, s[start:i])
				start = i + 1
			}
		}
		if depth < 0 || depth > 1 {
			break
		}
	}
	if depth != 0 {
		return nil, fmt.Errorf("GRES %q: parentheses do not match", s)
	}
	return append(items, s[start:]), nil
}

func parseOneGRES(item string) (GRES, error) {
	bare, note, _ := strings.Cut(item, "(")
	if note != "" && !strings.HasSuffix(note, ")") {
		return GRES{}, fmt.Errorf("%q contains text after the closing parenthesis", item)
	}
	bare = strings.TrimPrefix(strings.TrimPrefix(bare, "gres:"), "gres/")
	g := GRES{Count: 1}
	count := ""
	if b, c, ok := strings.Cut(bare, "="); ok {
		bare, count = b, c
	} else if i := strings.LastIndexByte(bare, ':'); i > 0 && countRE.MatchString(bare[i+1:]) {
		bare, count = bare[:i], bare[i+1:]
	}
	if c, ok := strings.CutPrefix(strings.TrimSuffix(note, ")"), "CNT:"); ok {
		count = c
	}
	if count != "" {
		var err error
		if g.Count, err = parseCount(count); err != nil {
			return GRES{}, err
		}
	}
	g.Name, g.Type, _ = strings.Cut(strings.TrimSuffix(bare, ":no_consume"), ":")
	if err := g.valid(); err != nil {
		return GRES{}, err
	}
	return g, nil
}

var (
	gresName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_]*$`)
	gresType = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._+-]*$`)
)

// valid returns an error if the GRES must not appear in a command line. ParseGRES also rejects such a GRES in the
// output of a command.
func (g GRES) valid() error {
	switch {
	case !gresName.MatchString(g.Name) || g.Name == "gres": // "gres" is a prefix that Slurm prints
		return fmt.Errorf("%q is not a GRES name", g.Name)
	case g.Type != "" && (!gresType.MatchString(g.Type) || countRE.MatchString(g.Type)):
		return fmt.Errorf("%q is not a GRES type", g.Type)
	case g.Count < 0:
		return fmt.Errorf("the count %d for %s is negative", g.Count, g.Name)
	}
	return nil
}

// maxCount limits counts so that their sums cannot overflow, because users can request any count. No node has as many
// units, so a larger count and maxCount have the same meaning.
const maxCount = 1 << 48

func parseCount(s string) (int, error) {
	m := countRE.FindStringSubmatch(s)
	if m == nil {
		return 0, fmt.Errorf("%q is not a count", s)
	}
	mult, base := 1, 1024
	if strings.EqualFold(m[3], "b") {
		base = 1000
	}
	for range 1 + strings.IndexByte("KMGTP", (m[2] + " ")[0]&^0x20) {
		mult *= base
	}
	if n, err := strconv.Atoi(m[1]); err == nil && n <= maxCount/mult {
		return n * mult, nil
	}
	return maxCount, nil
}

// ParseTRES parses the generic resources in a list of TRES, such as "cpu=2,mem=8000M,gres/gpu=1,gres/mig:2g.10gb=1".
// The total over all types, which slurmdbd also stores (gres/mig=1), becomes an entry without a type.
func ParseTRES(s string) (GRESList, error) {
	if isNull(s) {
		return nil, nil
	}
	var list GRESList
	for item := range strings.SplitSeq(s, ",") {
		if !strings.HasPrefix(item, "gres/") {
			continue
		}
		g, err := parseOneGRES(item)
		if err != nil {
			return nil, fmt.Errorf("TRES %q: %w", s, err)
		}
		list = append(list, g)
	}
	return list, nil
}

// requestGRES parses a request. It skips TRES that are not GRES (cpu:1), which requests can include since 23.02. If a
// type occurs several times, the last nonzero count is used, as in slurmctld.
func requestGRES(s string) (GRESList, error) {
	if isNull(s) {
		return nil, nil
	}
	var kept []string
	items, err := splitGRES(s)
	if err != nil {
		return nil, err
	}
	for _, item := range items {
		if strings.HasPrefix(item, "gres:") || strings.HasPrefix(item, "gres/") {
			kept = append(kept, item)
		}
	}
	list, err := ParseGRES(strings.Join(kept, ","))
	if err != nil {
		return nil, err
	}
	var last GRESList
	for _, g := range list {
		i := slices.IndexFunc(last, func(o GRES) bool { return o.Name == g.Name && o.Type == g.Type })
		if i < 0 {
			last = append(last, g)
		} else if g.Count > 0 {
			last[i] = g
		}
	}
	return last, nil
}

// ClosedType is the gres/mig type for slices that are not on offer. The agent sets its count so that the node's total
// stays constant.
const ClosedType = "closed"
