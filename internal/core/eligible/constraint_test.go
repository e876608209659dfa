package eligible

import (
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"caelum/internal/slurm"
)

// constraints lists expressions, each with a node that does or does not satisfy it.
var constraints = []struct {
	text     string
	nodes    int
	features string // of a node
	want     string // a part of the expected reason, or empty if the node satisfies the expression
}{
	{"", 1, "", ""},
	{"(null)", 1, "", ""},
	{"a", 1, "b a", ""},
	{"a", 0, "b", "does not have the features a"},
	{"a&b", 1, "a b", ""},
	{"a&b", 1, "a", "does not have the features a&b"},
	{"a,b", 1, "a", "does not have the features a,b"},
	{"a|b", 1, "b", ""},
	{"a|b&c", 1, "a", "does not have"}, // (a|b)&c
	{"a|b&c", 1, "a c", ""},
	{"a&b|c", 1, "c", ""}, // (a&b)|c
	{"a|(b&c)", 1, "a", ""},
	{"a|(b&c)", 1, "b", "does not have"},
	{"(a|b)&(c|d)", 1, "b c", ""},
	{"(a|b)&(c|d)", 1, "a b", "does not have"},
	{"(a)", 1, "a", ""},
	{"(a&b|c)", 1, "c", ""},
	{"[a|b]", 1, "b", ""},
	{"[a|b]", 1, "c", "does not have"},
	{"f&[a|b]", 1, "a", "does not have"},
	{"f&[a|b]&g", 2, "f g a", ""},
	{"[a]", 1, "a", ""},
	{"a*1", 1, "a", ""},
	{"a*1", 1, "b", "does not have"},
	{"a*2", 1, "a", "needs 2 nodes, but the job requests 1"},
	{"a*2", 4, "a", ""},
	{"a*2", 4, "b", "does not have"},
	{"(a|b)*2", 2, "b", ""},
	{"a*1&b*1", 1, "a", "does not have"},
	{"a*1&b*1", 2, "a b", ""},
	{"[a*1&b*1]", 2, "a b", "use a heterogeneous job"},
	{"[(a|b)*1&(c)*1]", 2, "a b c", "parentheses in brackets"},
	{"[(a&b)|(c&d)]", 1, "c d", "parentheses in brackets"},
	{"a|b*1", 1, "a b", "counts that are joined with |"},
	{"a|[b|c]", 1, "a b", "brackets that are not joined with &"},
	{"[a|b]|c", 1, "a c", "brackets that are not joined with &"},
	{"[a|b]&[c|d]", 1, "a c", "brackets that are not joined with &"},
	{"[a|b*1]", 1, "a b", "use a heterogeneous job"},
	{"((a|b)&c)", 1, "a b c", "cannot be read"},
	{"a&", 1, "a", "cannot be read"},
	{"(a|b)c", 1, "a b c", "cannot be read"},
	{"(a|b", 1, "a b", "cannot be read"},
	{"a*0", 1, "a", "count"},
	{"a*99999999999999999999", 1, "a", "count"},
	{"|a", 1, "a", "cannot be read"},
	{"[a|b", 1, "a", "cannot be read"},
	{
		strings.Repeat("x", slurm.MaxConstraintText+1), 1, "",
		"features " + strings.Repeat("x", slurm.MaxConstraintText) + "...",
	},
	{strings.Repeat("a|", slurm.MaxFeatures) + "a", 1, "a", "more than 64"},
	{strings.Repeat("a|", slurm.MaxFeatures-1) + "a", 1, "a", ""},
}

func TestConstraint(t *testing.T) {
	for _, c := range constraints {
		got := LacksFeatures(slurm.ParseConstraint(c.text), strings.Fields(c.features), c.nodes)
		if !strings.Contains(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%s on a node with %q, of %d: %q, want %q", c.text, c.features, c.nodes, got, c.want)
		}
	}
}

var (
	parens  = regexp.MustCompile(`\(([TF])\)`)
	operate = regexp.MustCompile(`(^|\()([TF])([&|])([TF])`)
	bracket = regexp.MustCompile(`&?\[([TF|]+)\](&?)`)
	word    = regexp.MustCompile(`[a-z]+`)
)

// plainly evaluates an expression by rewriting its text. It first replaces each feature with T or F, and then
// repeatedly replaces the leftmost operation with its result, until only one letter remains.
func plainly(text string, features []string) bool {
	text = word.ReplaceAllStringFunc(strings.ReplaceAll(text, ",", "&"), func(name string) string {
		if slices.Contains(features, name) {
			return "T"
		}
		return "F"
	})
	if m := bracket.FindStringSubmatch(text); m != nil {
		if !strings.Contains(m[1], "T") {
			return false
		}
		if text = strings.Replace(text, m[0], m[2], 1); strings.HasPrefix(text, "&") {
			text = text[1:]
		}
		if text == "" {
			return true
		}
	}
	for len(text) > 1 {
		before := text
		text = parens.ReplaceAllString(text, "$1")
		if m := operate.FindStringSubmatch(text); m != nil {
			result := "F"
			if m[2] == "T" && m[4] == "T" || m[3] == "|" && (m[2] == "T" || m[4] == "T") {
				result = "T"
			}
			text = strings.Replace(text, m[0], m[1]+result, 1)
		}
		if text == before {
			panic("no operation in " + text)
		}
	}
	return text == "T"
}

// expression returns a random expression that slurmctld accepts and that can be evaluated for a single node.
func expression(rng *rand.Rand) string {
	names := []string{"a", "b", "c", "d"}
	name := func() string { return names[rng.IntN(len(names))] }
	operator := func() string { return []string{"&", "|", ","}[rng.IntN(3)] }
	at := -1 // position of the brackets
	n := 1 + rng.IntN(4)
	if rng.IntN(3) == 0 {
		at = rng.IntN(n)
	}
	text := ""
	for k := range n {
		part := name()
		switch {
		case k == at:
			part = "[" + name()
			for range rng.IntN(3) {
				part += "|" + name()
			}
			part += "]"
		case rng.IntN(3) == 0:
			part = "(" + name()
			for range rng.IntN(3) {
				part += operator() + name()
			}
			part += ")"
		}
		switch {
		case k == 0:
		case k == at || k == at+1 && at >= 0:
			text += "&"
		default:
			text += operator()
		}
		text += part
	}
	return text
}

// TestConstraintPlainly checks that the evaluator and plainly agree for every set of features.
func TestConstraintPlainly(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 5000 {
		text := expression(rng)
		c := slurm.ParseConstraint(text)
		for set := range 1 << 4 {
			var features []string
			for k, name := range []string{"a", "b", "c", "d"} {
				if set>>k&1 == 1 {
					features = append(features, name)
				}
			}
			if got := LacksFeatures(c, features, 1); (got == "") != plainly(text, features) {
				t.Fatalf("%s on %v: %q", text, features, got)
			}
		}
	}
}

// FuzzConstraint checks that the evaluator returns a result for every input, and that a node without features never
// satisfies an expression with a feature.
func FuzzConstraint(f *testing.F) {
	for _, s := range []string{
		"a&b", "(a|b)&c", "[a|b]&c*2", "a*", "[[", "(a))", "a,,b", "a|b*3", "[a*1&b*2]", "x\x00y",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		c := slurm.ParseConstraint(s)
		if reason := LacksFeatures(c, nil, 1); reason == "" && c.Text != "" {
			t.Fatalf("%q is met by a node without features", s)
		}
		if c.Problem == "" && c.Text != "" {
			names := strings.FieldsFunc(s, func(r rune) bool { return strings.ContainsRune(",&|()[]*", r) })
			if reason := LacksFeatures(c, names, math.MaxInt); reason != "" {
				t.Fatalf("%q is not met by a node with %q: %s", s, names, reason)
			}
		}
		for k := range len(c.AnyOf) {
			if MeetsAlternative(c, k, nil) {
				t.Fatalf("%q: alternative %d is met without features", s, k)
			}
		}
	})
}
