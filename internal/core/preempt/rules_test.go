package preempt

import (
	"maps"
	"testing"
	"time"

	"caelum/internal/slurm"
)

var now = time.Unix(1763790000, 0)

func rules(t testing.TB, config map[string]string) Rules {
	t.Helper()
	r, err := NewRules(slurm.Config{Values: config}, []slurm.Partition{
		{Name: "low", Tier: 1, PreemptMode: "REQUEUE", Grace: time.Minute},
		{Name: "same", Tier: 1, PreemptMode: "REQUEUE"},
		{Name: "cancel", Tier: 1, PreemptMode: "CANCEL"},
		{Name: "safe", Tier: 1, PreemptMode: "OFF"},
		{Name: "gang", Tier: 1, PreemptMode: "GANG,SUSPEND"},
		{Name: "held", Tier: 1, PreemptMode: "REQUEUE", QOS: "exempt"},
		{Name: "high", Tier: 10, PreemptMode: "REQUEUE"},
		{Name: "fair", Tier: 10, PreemptMode: "PRIORITY,REQUEUE"},
	}, []slurm.QOS{
		{Name: "normal", PreemptMode: "CLUSTER"},
		{Name: "scavenger", PreemptMode: "CANCEL", Grace: time.Minute},
		{Name: "urgent", PreemptMode: "CLUSTER", Preempt: []string{"scavenger"}},
		{Name: "within", PreemptMode: "WITHIN,REQUEUE"},
		{Name: "exempt", PreemptMode: "CLUSTER", Exempt: time.Hour},
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// with returns the configuration with another value for a key.
func with(config map[string]string, key, value string) map[string]string {
	config = maps.Clone(config)
	config[key] = value
	return config
}

// TestRules checks slurmctld's rules with partitions and with QOS, and the cases in which the rules are stricter.
func TestRules(t *testing.T) {
	tier := map[string]string{"PreemptType": "preempt/partition_prio", "PreemptMode": "REQUEUE"}
	qos := map[string]string{
		"PreemptType": "preempt/qos", "PreemptMode": "REQUEUE", "AccountingStorageType": "accounting_storage/slurmdbd",
	}
	for _, c := range []struct {
		what     string
		config   map[string]string
		by, of   string // partition, or QOS
		change   func(w *slurm.Waiting, j *slurm.Job)
		may      bool
		mode     Mode
		graceful bool
	}{
		{"higher tier", tier, "high", "low", nil, true, Requeue, true},
		{"same tier", tier, "same", "low", nil, false, Requeue, true},
		{"lower tier", tier, "low", "high", nil, false, Requeue, false},
		{"cancel", tier, "high", "cancel", nil, true, Cancel, false},
		{"a partition with OFF", tier, "high", "safe", nil, false, Off, false},
		{"a partition with SUSPEND", tier, "high", "gang", nil, false, Off, false},
		{"one of the partitions has the same tier", tier, "high,same", "low", nil, false, Requeue, true},
		{"an unknown partition", tier, "high,gone", "low", nil, false, Requeue, true},
		{"a lower priority under PRIORITY", tier, "fair", "low", nil, false, Requeue, true},
		{"a higher priority under PRIORITY", tier, "fair", "low",
			func(w *slurm.Waiting, _ *slurm.Job) { w.Priority = 9 }, true, Requeue, true},
		{"PreemptMode=OFF", with(tier, "PreemptMode", "OFF"), "high", "low", nil, false, Off, false},
		{"PreemptMode=GANG", with(tier, "PreemptMode", "GANG,REQUEUE"), "high", "low", nil, false, Off, false},
		{"no PreemptType", with(tier, "PreemptType", "preempt/none"), "high", "low", nil, false, Off, false},
		{"exempt", with(tier, "PreemptExemptTime", "00:10:01"), "high", "low", nil, false, Requeue, true},
		{"no longer exempt", with(tier, "PreemptExemptTime", "00:10:00"), "high", "low", nil, true, Requeue, true},
		{"the QOS of the partition is exempt", with(tier, "AccountingStorageType", slurmdbd), "high", "held",
			func(_ *slurm.Waiting, j *slurm.Job) { j.QOS = "normal" }, false, Requeue, false},
		{"an unknown QOS", with(tier, "AccountingStorageType", slurmdbd), "high", "low",
			func(_ *slurm.Waiting, j *slurm.Job) { j.QOS = "gone" }, false, Requeue, true},
		{"suspended", tier, "high", "low",
			func(_ *slurm.Waiting, j *slurm.Job) { j.State = "SUSPENDED" }, false, Requeue, true},
		{"a component", tier, "high", "low",
			func(_ *slurm.Waiting, j *slurm.Job) { j.HetJob = 5 }, false, Requeue, true},
		{"a priority above min_exempt_priority",
			with(tier, "PreemptParameters", "youngest_first,min_exempt_priority=4"), "high", "low", nil, false, Requeue,
			true},
		{"the priority of min_exempt_priority", with(tier, "PreemptParameters", "min_exempt_priority=5"), "high", "low",
			nil, true, Requeue, true},
		{"in the list of the QOS", qos, "urgent", "scavenger", nil, true, Cancel, true},
		{"not in the list of the QOS", qos, "urgent", "normal", nil, false, Requeue, false},
		{"the other direction", qos, "scavenger", "urgent", nil, false, Requeue, false},
		{"within a QOS", qos, "within", "within",
			func(w *slurm.Waiting, _ *slurm.Job) { w.Priority = 9 }, true, Requeue, false},
		{"within a QOS, with a lower priority", qos, "within", "within", nil, false, Requeue, false},
		{"the same QOS without WITHIN", qos, "urgent", "urgent", nil, false, Requeue, false},
	} {
		r := rules(t, c.config)
		w := slurm.Waiting{Job: &slurm.Job{Partition: c.by, QOS: c.by, Priority: 1}}
		j := slurm.Job{State: "RUNNING", Partition: c.of, QOS: c.of, Priority: 5, Start: now.Add(-10 * time.Minute)}
		if c.change != nil {
			c.change(&w, &j)
		}
		if got := r.May(w, j, now); got != c.may || c.mode != r.ModeOf(j) || c.graceful != (r.Grace(j) > 0) {
			t.Errorf("%s: %v, mode %s, grace time %v", c.what, got, r.ModeOf(j), r.Grace(j))
		}
	}
}

// TestUnknownMinExemptPriority checks that the rules allow no preemption if min_exempt_priority cannot be parsed.
func TestUnknownMinExemptPriority(t *testing.T) {
	for _, value := range []string{"", "x", "-1", "0"} {
		r, err := NewRules(slurm.Config{Values: map[string]string{"PreemptType": byPartition, "PreemptMode": "REQUEUE",
			"PreemptParameters": "min_exempt_priority=" + value}}, nil, nil)
		if err == nil || r.Enabled() {
			t.Errorf("%q: %v, enabled %v", value, err, r.Enabled())
		}
	}
}
