package plan

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"caelum/internal/slurm"
)

// backPrefix is the prefix of the `caelum-back` entry in a node's Extra. This entry lists the jobs that slurmctld did
// not start although their slices were offered on the node. The agents plan these jobs after all other jobs. An example
// is "caelum-back=123_@1700000000;124_3-5@1700000100". Each item consists of the job id, the array tasks, and the time
// in Unix seconds until which the job is planned last. Only `caelum explain` reads the entry, because it does not
// observe the queue over time as the agents do. The list is not part of the node state, because agents from earlier
// releases reject a node state that contains an unknown item.
const backPrefix = "caelum-back="

const (
	// maxBack limits the number of jobs in a node's entry, so that Extra stays short.
	maxBack = 32
	// maxItem limits the length of an item, in bytes, because an array's task list can be long. Back omits longer
	// items.
	maxItem = 40
)

// Back returns the text of the `caelum-back` entry for a node. It lists the jobs that are planned after all other jobs
// at the time at, and is empty if there are none.
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

// WithBack returns a node's Extra with text as the `caelum-back` entry. The other entries remain unchanged. An empty
// text removes the entry.
func WithBack(extra, text string) string { return withEntry(extra, backPrefix, text) }

// BackIn returns the text of the `caelum-back` entry, or an empty string. The watcher writes the entry into a node's
// Comment, and the agent copies it to Extra.
func BackIn(text string) string {
	for w := range strings.FieldsSeq(text) {
		if list, ok := strings.CutPrefix(w, backPrefix); ok {
			return list
		}
	}
	return ""
}

// backOf parses the `caelum-back` entries of all nodes. The result maps each job (see entry) to the time until which it
// is planned after all other jobs. Items that cannot be parsed are ignored.
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
