package main

import (
	"strings"
	"testing"

	"caelum/internal/config"
	"caelum/internal/core/mig"
	"caelum/internal/node/inventory"
)

// TestSlurmConfigFractions checks the lines for nodes whose GPUs have fractions. A job without earlier runs gets a
// whole GPU unless the site names a fraction as the default.
func TestSlurmConfigFractions(t *testing.T) {
	inv := inventory.Inventory{
		Slots: []inventory.TypedCount{{Type: "l40s", Count: 4}},
		Most: []inventory.Offered{
			{TypedCount: inventory.TypedCount{Type: "1f.11gb", Count: 4}, MemoryMiB: 11389},
			{TypedCount: inventory.TypedCount{Type: mig.Full, Count: 1}, MemoryMiB: 46068},
		},
		Models: []inventory.Model{{Type: "l40s", Profiles: []string{"1f.11gb", mig.Full}, Units: 4}},
		Total:  16,
	}
	for def, want := range map[string]string{"": "full", "1f.11gb": "1f.11gb"} {
		for section, want := range map[string]string{
			"decisions": "caelum-decisions 1 1\npartition gpu full\nprofile 1f.11gb 11389 4\nprofile full 46068 1\n" +
				"model l40s 1f.11gb 4\nmodel l40s full 4\ndefault " + want + "\nwhole full\ngrow oom\nmax_nodes 2\n" +
				"max_cpus 8\n",
			"nodes": "NodeName=n1 Gres=gpu:l40s:4,mig:1f.11gb:0,mig:full:0,mig:closed:16\n" +
				"NodeName=mig-catalog[1-2] NodeAddr=127.0.0.1 Port=1 State=FUTURE CPUs=8 RealMemory=7 " +
				"Gres=gpu:l40s:4,mig:1f.11gb:4,mig:full:1\nPartitionName=gpu Nodes=n1,mig-catalog[1-2]\n",
		} {
			o := slurmConfigOptions{
				nodes: "n1", partition: "gpu", catalogue: 2, cpus: 8, memory: 7, section: section,
			}
			var text strings.Builder
			err := renderSlurmConfig(&text, o, config.Config{DefaultProfile: def}, inv)
			if err != nil || text.String() != want {
				t.Errorf("%s: %v\n%s\nwant\n%s", section, err, text.String(), want)
			}
		}
	}
}
