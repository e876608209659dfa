package plan

import (
	"reflect"
	"testing"

	"caelum/internal/slurm"
)

// TestPublishedSettings checks that an agent replaces only its own entry in Extra, and that nodes with different
// settings are found.
func TestPublishedSettings(t *testing.T) {
	const mine, other = "lifetime,adaptive", "lifetime,tightest"
	if s, err := ParseSettings("lifetime", SizingTightest, 0); err != nil || s.Text != other {
		t.Errorf("%+v, %v", s, err)
	}
	extra := WithSettings("rack=7 caelum=1;none caelum-plan=reach,tightest", mine)
	if extra != "rack=7 caelum=1;none caelum-plan=lifetime,adaptive" || WithState(extra, "2") !=
		"rack=7 caelum-plan=lifetime,adaptive caelum=2" || WithSettings(extra, "") != "rack=7 caelum=1;none" {
		t.Errorf("%q", extra)
	}
	nodes := []slurm.Node{
		{Name: "n1", Extra: extra}, {Name: "n2", Extra: WithSettings("", other)}, {Name: "n3"},
		{Name: "n4", Extra: WithSettings("x", other)}, {Name: "n5", Extra: WithSettings("", "best-fit,adaptive")},
	}
	want := []string{"n5 (best-fit,adaptive)", "n2, n4 (lifetime,tightest)"}
	if got := DifferentSettings(nodes, mine); !reflect.DeepEqual(got, want) {
		t.Errorf("%q", got)
	}
	if got := DifferentSettings(nodes[:1], mine); got != nil {
		t.Errorf("%q", got)
	}
}
