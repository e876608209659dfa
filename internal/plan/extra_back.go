package plan

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"caelum/internal/slurm"
)

// backPrefix begins the entry in a node's Extra that lists the jobs that come after all other jobs, because slurmctld
// did not start them while their slices were on offer on this node. An example is
// "caelum-back=123_@1700000000;124_3-5@1700000100": each item is the job, its array tasks, and the end of that time in
// Unix seconds. Every agent measures by itself how long the slices of a job have been on offer. Only `caelum explain`,
// which has not watched the queue, reads the entry. The list is an entry of its own, because an agent of an earlier
// release cannot read a node's state that has an unknown item.
const backPrefix = "caelum-back="

const (
	// maxBack limits the jobs in the entry of a node, so that Extra stays short.
	maxBack = 32
	// maxItem limits the length of an item, in bytes, because the list of the tasks of an array can be long. A longer
	// item is left out.
	maxItem = 40
)

// Back returns the list of the jobs that come after all other jobs at this time, for the entry in the Extra of a node.
// The list is empty if there are none.
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

// WithBack returns a node's Extra with this list in its entry, and with the other entries as they are. An empty text
// removes the entry.
func WithBack(extra, text string) string {
	entries := slices.DeleteFunc(strings.Fields(extra), func(w string) bool { return strings.HasPrefix(w, backPrefix) })
	if text != "" {
		entries = append(entries, backPrefix+text)
	}
	return strings.Join(entries, " ")
}

// backOf reads the entries of all nodes. It returns, by queue entry (see entry), until when that job comes after all
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
