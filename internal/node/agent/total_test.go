package agent

import (
	"context"
	"strconv"
	"testing"

	"caelum/internal/node/publish"
)

// The tests in this file check N, the node's constant total of gres/mig. N must be the total in slurm.conf, and never a
// count that an agent or `caelumd close` has written.

// TestSlurmdAndAgentRestarted restarts slurmd. When it registers, slurmctld sets the count of `closed` to N, although
// the offers stay published. Before the next pass, the agent ends and `caelumd close` runs.
func TestSlurmdAndAgentRestarted(t *testing.T) {
	for _, tc := range []struct{ name, tres string }{
		{"CfgTRES shows N", "gres/gpu,gres/mig"},
		{"CfgTRES does not", ""},
	} {
		for _, ledger := range []bool{true, false} {
			t.Run(tc.name, func(t *testing.T) {
				w := newWorld(t, 2)
				w.fake.SetConfig("AccountingStorageTRES", tc.tres)
				w.publish()
				known := 0
				if ledger {
					text, err := w.agent.ledger.Meta("total")
					if err != nil {
						t.Fatal(err)
					}
					if known, err = strconv.Atoi(text); err != nil {
						t.Fatal(err)
					}
				}
				if err := w.fake.RestartSlurmd("n1"); err != nil {
					t.Fatal(err)
				}
				if w.total() <= 56 {
					t.Fatal("slurmd's registration left the sum as it was")
				}
				w.stop()
				if err := publish.CloseOffers(context.Background(), w.fake, "n1", known); err != nil {
					t.Fatal(err)
				}
				if w.total() != 56 {
					t.Errorf("closed: the total is %d, want 56", w.total())
				}
				w.start()
				w.publish()
				if w.total() != 56 || len(w.offers()) == 0 {
					t.Errorf("the total is %d, want 56; on offer: %v", w.total(), w.offers())
				}
			})
		}
	}
}

// TestWrongTotalIsNotLearned starts an agent on a closed node whose counts do not add up to the total in slurm.conf.
func TestWrongTotalIsNotLearned(t *testing.T) {
	for _, tres := range []string{"gres/mig", ""} {
		w := newWorld(t, 1)
		w.fake.SetConfig("AccountingStorageTRES", tres)
		w.publish()
		w.stop()
		wrong := gres(t, "gpu:a100:7,mig:1g.5gb:0,mig:closed:34")
		if err := w.fake.UpdateNode(context.Background(), "n1", wrong, ""); err != nil {
			t.Fatal(err)
		}
		w.start()
		w.publish()
		if w.total() != 28 {
			t.Errorf("AccountingStorageTRES=%q: the total is %d, want 28", tres, w.total())
		}
	}
}

// TestOtherTotalInSlurmConf changes the total in slurm.conf to more than four times the number of slots. The agent must
// use the new total after a restart of slurmctld.
func TestOtherTotalInSlurmConf(t *testing.T) {
	for _, tres := range []string{"gres/mig", ""} {
		w := newWorld(t, 1)
		w.fake.SetConfig("AccountingStorageTRES", tres)
		w.publish()
		if err := w.fake.Configure("n1", gres(t, "gpu:a100:7,mig:1g.5gb:0,mig:2g.10gb:0,mig:closed:100")); err != nil {
			t.Fatal(err)
		}
		w.fake.Restart()
		for range 2 {
			w.publish()
			if w.total() != 100 || len(w.offers()) == 0 {
				t.Errorf(
					"AccountingStorageTRES=%q: the total is %d, want 100; on offer: %v",
					tres,
					w.total(),
					w.offers(),
				)
			}
			w.stop()
			w.start()
		}
	}
}
