package setup

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"caelum/internal/core/mig"
	"caelum/internal/slurm"
)

// replacesShards reports whether fractions replace the shards (gres/shard) of the managed nodes. Only fractions share a
// GPU without MIG as shards do.
func (m *merger) replacesShards() bool { return len(m.units) > 0 && len(m.slots) == 1 }

// shardCount is the number of shards of a GPU. If nodes have different numbers, it is the smallest and the largest.
type shardCount struct{ least, most int }

// findShards determines the numbers of shards that fractions replace, and whether other nodes or parameters need the
// TRES gres/shard. lines are the lines of slurm.conf.
func (m *merger) findShards(lines []line, nodes []nodeLine) {
	m.shards = map[string]shardCount{}
	for _, l := range nodes {
		for _, item := range l.gres() {
			if gresName(item) == "shard" && !l.inside {
				m.keepShards = true
			} else if gresName(item) == "shard" && m.replacesShards() {
				m.addShards(l, item)
			}
		}
	}
	for _, l := range lines {
		for _, w := range l.words {
			m.keepShards = m.keepShards || !strings.EqualFold(w.key, "AccountingStorageTRES") &&
				strings.Contains(strings.ToLower(w.value), "gres/shard")
		}
	}
	if len(m.shards) > 0 {
		m.note("Setup removes gres/shard from the nodes, but not from GresTypes, without which sbatch would refuse " +
			"shards. Jobs that request shards get the profiles in the shard lines of the decision table. Cancel the " +
			"waiting jobs that request shards, and submit them again after the conversion: convert-jobs does not " +
			"change them.")
	}
}

// addShards notes how many shards a GPU has, for requests with their type and for requests without a type.
func (m *merger) addShards(l nodeLine, item string) {
	list, err := slurm.ParseGRES("shard" + item[len("shard"):])
	if err != nil || len(list) != 1 {
		m.problem(l.line, "Gres= contains "+item+", which setup cannot read; correct it")
		return
	}
	kind, gpus := list[0].Type, 0
	for _, g := range m.gpus(l) {
		if kind == "" || g.kind == "" || g.kind == kind {
			gpus += g.count
		}
	}
	each := list[0].Count / max(gpus, 1)
	if gpus == 0 || each == 0 {
		m.problem(l.line, fmt.Sprintf("Gres= contains %s, but also %d GPUs; list at least one shard for each GPU",
			item, gpus))
		return
	}
	for _, of := range []string{"", kind} {
		has := m.shards[of]
		m.shards[of] = shardCount{min(each, cmp.Or(has.least, each)), max(each, has.most)}
	}
}

// withoutShards removes shards from the value of AccountingStorageTRES, unless something else needs them. They stay in
// GresTypes, because sbatch refuses requests for a GRES that is not in it (22.05 to 26.05).
func (m *merger) withoutShards(key, value string) string {
	if key != "AccountingStorageTRES" || len(m.shards) == 0 || m.keepShards {
		return value
	}
	isShard := func(item string) bool { return gresName(item) == "gres/shard" }
	return strings.Join(slices.DeleteFunc(items(value), isShard), ",")
}

// shardLines returns the lines of the decision table with which jobs that request shards get at least the same part of
// a GPU.
func (m *merger) shardLines() (lines []string) {
	for _, kind := range slices.Sorted(maps.Keys(m.shards)) {
		written := map[int]bool{0: true}
		for _, p := range m.profiles { // from small to large
			count := m.shards[kind].most
			if units := m.units[p]; units > 0 {
				count = m.shards[kind].least * mig.Units(p) / units
			}
			if !written[count] {
				written[count] = true
				lines = append(lines, "shard "+strings.TrimPrefix(fmt.Sprintf("%s:%d ", kind, count), ":")+p)
			}
		}
	}
	return lines
}
