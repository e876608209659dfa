package plan

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"caelum/internal/slurm"
)

// backPrefix is the beginning of the entry in a node's Extra that lists the jobs that come after all other jobs,
// because slurmctld did not start them while their slices were offered on this node. An example is
// "caelum-back=123_@1700000000;124_3-5@1700000100": each item consists of the job id, its array tasks, and the time in
// Unix seconds until which the job comes last. Every agent measures for itself how long the slices of a job have been
// offered. Only `caelum explain`, which has not watched the queue, reads the entry. The list is a separate entry,
// because an agent of an earlier release cannot parse a node state that contains an unknown item.
const backPrefix = "caelum-back="

const (
	// maxBack limits the number of jobs in a node's entry, so that Extra stays short.
	maxBack = 32
	// maxItem limits the length of an item, in bytes, because an array's task list can be long. Longer items are left
	// out.
	maxItem = 40
)

// Back returns the list of the jobs that come after all other jobs at the time at, for the entry in the Extra of a
// node. The list is empty if there are none.
func (u *Unstarted) Back(node string, at time.Time) string {
	var all []string
	for id, job := range u.jobs {
		if at.Before(job.until) && slices.Contains(job.on, node) && len(id) <= maxItem {
			all = append(all, fmt.Sprintf("%s@%d", id, job.until.Unix()))
		}
	}
	slices.Sort(all)
	return strings.Join(all[:min(len(all), maxBack)], ";")
}

// WithBack returns a node's Extra with this list in the entry caelum-back, and with the other entries unchanged. An
// empty text removes the entry.
func WithBack(extra, text string) string {
	entries := slices.DeleteFunc(strings.Fields(extra), func(w string) bool { return strings.HasPrefix(w, backPrefix) })
	if text != "" {
		entries = append(entries, backPrefix+text)
	}
	return strings.Join(entries, " ")
}

// backOf reads the entries of all nodes. It maps each job (see entry) to the time until which the job comes after all
// other jobs. Items that cannot be read are left out.
func backOf(nodes []slurm.Node) map[string]time.Time {
	back := map[string]time.Time{}
	for _, n := range nodes {
		for w := range strings.FieldsSeq(n.Extra) {
			list, _ := strings.CutPrefix(w, backPrefix)
			if list == w {
				continue
			}
			for item := range strings.SplitSeq(list, ";") {
				id, end, _ := strings.Cut(item, "@")
				if unix, err := strconv.ParseInt(end, 10, 64); err == nil && time.Unix(unix, 0).After(back[id]) {
					back[id] = time.Unix(unix, 0)
				}
			}
		}
	}
	return back
}
