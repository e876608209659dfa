package part

import (
	"maps"
	"strings"
	"testing"
	"time"

	"caelum/internal/slurm"
)

// TestDigest checks that a digest changes with each value on which a pass depends, but not with the heartbeat, the time
// of the request, or other settings.
func TestDigest(t *testing.T) {
	mig := func(n int) slurm.GRESList { return slurm.GRESList{{Name: "mig", Type: "1g.5gb", Count: n}} }
	n := slurm.Node{
		Name: "n1", States: []string{"IDLE"}, Gres: mig(2), GresUsed: mig(0), MIGTotal: 28, BootTime: time.Unix(1, 0),
		SlurmdStartTime: time.Unix(2, 0), Extra: "caelum=x", Version: "22.05.8", Comment: "site caelum-part=1;beat/n1",
	}
	for what, change := range map[string]func(*slurm.Node){
		"the heartbeat":           func(n *slurm.Node) { n.Comment = WithBeat(n.Comment, "0f", 3) },
		"the time of the request": func(n *slurm.Node) { n.Asked = time.Now() },
		"an allocation of CPUs":   func(n *slurm.Node) { n.States = []string{"MIXED"} },
	} {
		other := n
		if change(&other); Digest(other, slurm.Config{}) != Digest(n, slurm.Config{}) {
			t.Errorf("%s changes the digest", what)
		}
	}
	for what, change := range map[string]func(*slurm.Node){
		"name":         func(n *slurm.Node) { n.Name = "n2" },
		"state":        func(n *slurm.Node) { n.States = []string{"IDLE", "DRAIN"} },
		"totals":       func(n *slurm.Node) { n.Gres = mig(1) },
		"used counts":  func(n *slurm.Node) { n.GresUsed = mig(1) },
		"constant N":   func(n *slurm.Node) { n.MIGTotal++ },
		"registration": func(n *slurm.Node) { n.Unregistered = true },
		"boot":         func(n *slurm.Node) { n.BootTime = time.Unix(3, 0) },
		"slurmd":       func(n *slurm.Node) { n.SlurmdStartTime = time.Time{} },
		"Extra":        func(n *slurm.Node) { n.Extra = "" },
		"version":      func(n *slurm.Node) { n.Version = "24.11.5" },
		"part":         func(n *slurm.Node) { n.Comment = With(n.Comment, "1;beat/n2") },
		"comment":      func(n *slurm.Node) { n.Comment += " more" },
	} {
		other := n
		change(&other)
		if d := Digest(other, slurm.Config{}); d == Digest(n, slurm.Config{}) || d == NoRecord {
			t.Errorf("%s does not change the digest", what)
		}
	}
	base := map[string]string{"PreemptType": "preempt/qos", "NEXT_JOB_ID": "6"}
	for what, changes := range map[string]bool{
		"PrivateData=jobs": true, "SlurmUser=slurm(64030)": true, "PreemptMode=REQUEUE": true, "NEXT_JOB_ID=7": false,
	} {
		key, value, _ := strings.Cut(what, "=")
		values := maps.Clone(base)
		values[key] = value
		if (Digest(n, slurm.Config{Values: values}) != Digest(n, slurm.Config{Values: base})) != changes {
			t.Errorf("%s: want a change of the digest: %v", what, changes)
		}
	}
}

func TestParseConfirmation(t *testing.T) {
	beat, digest, ok := ParseConfirmation(Confirmation("9f@17", "4be6"))
	if beat != "9f@17" || digest != "4be6" || !ok {
		t.Errorf("%q, %q, %v", beat, digest, ok)
	}
	for _, text := range []string{"", "9f@17", "9f@17 ", " 4be6"} {
		if _, _, ok := ParseConfirmation(text); ok {
			t.Errorf("%q is accepted", text)
		}
	}
}
