package mig

import "testing"

// TestEquivalentProfile checks that the equivalent profile has at least the resources stated in the given name, is no
// larger than necessary, and may be offered.
func TestEquivalentProfile(t *testing.T) {
	for _, c := range []struct{ name, model, want string }{
		{"2g.10gb", "A100-40GB", "2g.10gb"},
		{"2g.10gb", "H100-80GB", "2g.20gb"},
		{"1g.5gb", "H100-80GB", "1g.10gb"},
		{"1g.10gb", "H100-80GB", "1g.10gb"},
		{"3g.20gb", "H100-80GB", "3g.40gb"},
		{"7g.40gb", "H100-80GB", "7g.80gb"},
		{"1g.20gb", "A100-40GB", "3g.20gb"}, // 2g has only 10 GB
		{"2g.20gb", "A100-40GB", "3g.20gb"},
		{"4g.40gb", "A100-40GB", "7g.40gb"},
		{"7g.80gb", "A100-40GB", ""},
		{"2g.10gb", "A30-24GB", "2g.12gb"},
		{"3g.20gb", "A30-24GB", "4g.24gb"},
		{"7g.40gb", "A30-24GB", ""},
		{"1g.10gb+me", "A100-40GB", ""}, // no plain profile has these media engines
		{"1g.5gb+me", "H100-80GB", ""},
		{"whole", "H100-80GB", ""},
		{"", "H100-80GB", ""},
	} {
		b, err := ModelByName(c.model)
		if err != nil {
			t.Fatal(err)
		}
		of := Layout(0)
		for p := range b.Profiles {
			of |= b.OfProfile(p)
		}
		if got, ok := b.EquivalentProfile(c.name, of); got != c.want || ok != (c.want != "") {
			t.Errorf("%s on %s: %q, want %q", c.name, c.model, got, c.want)
		}
		if _, ok := b.EquivalentProfile(c.name, 0); ok {
			t.Errorf("%s on %s: a profile is returned, although none may be offered", c.name, c.model)
		}
		p, ok := b.ProfileIndex(c.want)
		if !ok {
			continue
		}
		if got, _ := b.EquivalentProfile(c.name, of&^b.OfProfile(p)); got == c.want {
			t.Errorf("%s on %s: %s, which may not be offered", c.name, c.model, got)
		}
	}
}

// TestEquivalentWithoutMIG checks that a GPU without MIG replaces exactly the plain profiles, and which of them state
// more memory than it has.
func TestEquivalentWithoutMIG(t *testing.T) {
	b := Without("NVIDIA L40S").WithFull(46068)
	for name, want := range map[string]struct {
		profile string
		holds   bool
	}{
		"1g.5gb": {Full, true}, "7g.40gb": {Full, true}, "4g.44gb": {Full, true}, "3g.45gb": {Full, false},
		"7g.80gb": {Full, false}, "1g.5gb+me": {"", true}, Full: {Full, true}, "": {"", true},
	} {
		got, ok := b.EquivalentProfile(name, b.Full())
		if got != want.profile || ok != (got != "") || b.Holds(name) != want.holds {
			t.Errorf("%q: %q, holds it: %v, want %v", name, got, b.Holds(name), want)
		}
		if _, ok := b.EquivalentProfile(name, 0); ok {
			t.Errorf("%q: a profile is returned, although none may be offered", name)
		}
	}
}
