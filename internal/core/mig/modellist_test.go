package mig

import (
	"strings"
	"testing"
)

func TestTables(t *testing.T) {
	models := Models()
	if len(models) != 15 {
		t.Errorf("%d GPU models, want 15", len(models))
	}
	for _, b := range models {
		if _, err := ModelByName(b.Name); err != nil {
			t.Error(err)
		}
		if got := GRESType(b.Device); got != b.Type {
			t.Errorf("GRESType(%q) = %q, the table has %q", b.Device, got, b.Type)
		}
		if _, err := NewModel(b.Name, b.Type, b.Device, b.Grid, b.Profiles); err != nil {
			t.Error(err)
		}
		for p, pr := range b.Profiles {
			if got := b.OfProfile(p).Count(); got != len(pr.Starts) || pr.Max > got {
				t.Errorf(
					"%s %s: %d placements, %d starts, at most %d instances",
					b.Name,
					pr.Name,
					got,
					len(pr.Starts),
					pr.Max,
				)
			}
		}
	}
}

// TestTableFields checks every field in one line of each kind.
func TestTableFields(t *testing.T) {
	b, err := ModelByName("rtx-pro-6000-96gb")
	if err != nil {
		t.Fatal(err)
	}
	if b.Grid != 12 || b.PCI != "0x2BB510DE" || b.Reset || b.Device != "NVIDIA RTX PRO 6000 Blackwell Server Edition" {
		t.Errorf("head read as %+v", *b)
	}
	i, ok := b.ProfileIndex("2g.48gb+me.all")
	if !ok {
		t.Fatal("no 2g.48gb+me.all")
	}
	p := b.Profiles[i]
	if p.ID != 64 || p.Compute != 2 || p.Size != 6 || p.Max != 1 || p.SM != 94 || p.MemoryMiB != 48512 || p.CE != 2 ||
		p.DEC != 4 || p.ENC != 4 || p.JPEG != 4 || p.OFA != 1 || p.Gfx || p.Enum != "2_SLICE_ALL_ME" ||
		len(p.Starts) != 2 {
		t.Errorf("profile read as %+v", p)
	}
	b, _ = ModelByName("B200-180GB")
	i, _ = b.ProfileIndex("7g.180gb")
	if p := b.Profiles[i]; p.SM != -1 || p.MemoryMiB != 0 || p.OFA != -1 {
		t.Errorf("dashes read as %+v", p)
	}
}

func TestTableErrors(t *testing.T) {
	head := "board B 8 b 0x0 live B\n"
	for text, want := range map[string]string{
		"bord B":                                        "line 1",
		"profile 1g 0 1 1 1 - - - - - - - - X 0":        "line 1",
		head + "profile 1g 0 1":                         "line 2",
		head + "profile 1g 0 1 x 1 - - - - - - - - X 0": `"x"`,
		head + "profile 1g 0 1 1 1 - - - - - - - - X 8": "does not fit at start 8",
		"board B 8 b 0x0 sometimes B":                   "reset|live",
	} {
		if _, err := parseModels(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want an error with %q", text, err, want)
		}
	}
	if _, err := ModelByName("A1000"); err == nil || !strings.Contains(err.Error(), "A100-40GB") {
		t.Errorf("unknown GPU model: %v; want the known names", err)
	}
}

func TestNewModelRefuses(t *testing.T) {
	ok := Profile{Name: "1g", Compute: 1, Size: 1, Max: 1, Starts: []int{0}}
	with := func(change func(*Profile)) []Profile {
		p := ok
		change(&p)
		return []Profile{p}
	}
	var many []int
	for i := range 64 {
		many = append(many, i)
	}
	for _, c := range []struct {
		grid     int
		profiles []Profile
		want     string
	}{
		{0, nil, "grid"},
		{65, nil, "grid"},
		{8, []Profile{ok, ok}, "twice"},
		{8, with(func(p *Profile) { p.Name = "" }), "name"},
		{8, with(func(p *Profile) { p.Name = "1g|5gb" }), "name"},
		{8, with(func(p *Profile) { p.Name = "..." }), "name"},
		{8, with(func(p *Profile) { p.Size = 0 }), "size"},
		{8, with(func(p *Profile) { p.Size = 9 }), "size"},
		{8, with(func(p *Profile) { p.Compute = 0 }), "compute"},
		{8, with(func(p *Profile) { p.Max = 0 }), "instance limit"},
		{8, with(func(p *Profile) { p.Starts = nil }), "no start"},
		{8, with(func(p *Profile) { p.Starts = []int{8} }), "does not fit"},
		{8, with(func(p *Profile) { p.Starts = []int{-1} }), "does not fit"},
		{8, with(func(p *Profile) { p.Starts = []int{2, 2} }), "twice"},
		{64, []Profile{{Name: "a", Compute: 1, Size: 1, Max: 64, Starts: many}, ok}, "at most 64"},
	} {
		if _, err := NewModel("B", "b", "B", c.grid, c.profiles); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("grid %d, %+v: %v; want an error with %q", c.grid, c.profiles, err, c.want)
		}
	}
	// The last unit of the largest grid must not need special treatment.
	b, err := NewModel("B", "b", "B", 64, []Profile{
		{Name: "a", Compute: 1, Size: 64, Max: 1, Starts: []int{0}},
		{Name: "b", Compute: 1, Size: 1, Max: 1, Starts: []int{63, 0}},
	})
	if err != nil || len(b.Layouts()) != 4 || b.Placements[1].Start != 0 {
		t.Errorf("a grid of 64: %v", err)
	}
}

func TestGRESType(t *testing.T) {
	for device, want := range map[string]string{
		"NVIDIA A100-SXM4-40GB":         "a100",
		"NVIDIA A100 80GB PCIe":         "a100",
		"A100-PCIE-40GB":                "a100",
		"NVIDIA H100 80GB HBM3":         "h100",
		"NVIDIA H200 NVL":               "h200",
		"NVIDIA GH200 480GB":            "gh200",
		"NVIDIA B300 SXM6 AC":           "b300",
		"NVIDIA RTX PRO 5000 Blackwell": "rtx_pro_5000",
		"NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition": "rtx_pro_6000",
		"NVIDIA Thor": "thor",
		"NVIDIA":      "gpu",
		"":            "gpu",
		"µ–—":         "gpu",
	} {
		if got := GRESType(device); got != want {
			t.Errorf("GRESType(%q) = %q, want %q", device, got, want)
		}
	}
}

// TestTypeNames tests whether a type that a site chose contains the name of a GPU model.
func TestTypeNames(t *testing.T) {
	for site, want := range map[string]bool{
		"a100": true, "A100": true, "a100_80gb": true, "nvidia_a100-sxm4-80gb": true, "NVIDIA.A100": true,
		"a1000": false, "ga100": false, "nvidia": false, "tesla": false, "v100": false, "": false,
	} {
		if TypeNames(site, "a100") != want {
			t.Errorf("TypeNames(%q) = %v", site, !want)
		}
	}
	if !TypeNames("nvidia_rtx_pro_6000_blackwell", "rtx_pro_6000") {
		t.Error("rtx_pro_6000 was not found")
	}
}
