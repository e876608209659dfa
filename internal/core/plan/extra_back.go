package plan

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"caelum/internal/slurm"
)

// backPrefix is the prefix of the `caelum-back` entry in a node's Extra. It lists the jobs that slurmctld did not start
// even though their slices were offered on the node, and that the agents therefore plan after all others: for example,
// "caelum-back=123_@1700000000;124_3-5@1700000100". Each item consists of the job id, the array tasks, and the time in
// Unix seconds until which the job is planned last. Only `caelum explain` reads the entry, because it does not observe
// the queue over time as the agents do. It is not part of the node state, because agents from earlier releases reject a
// state that contains an unknown item.
const backPrefix = "caelum-back="

const (
	// maxBack is the maximum number of jobs in a node's entry. It keeps Extra short.
	maxBack = 32
	// maxItem is the maximum length of an item in bytes. It is limited because the task list of an array can be long.
	// Back omits longer items.
	maxItem = 40
)

// Back returns a node's `caelum-back` entry, without its prefix. The entry lists the jobs that are planned after all
// others at the given time. It is empty if there are no such jobs.
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

// WithBack returns a node's Extra with text as its `caelum-back` entry, or without this entry if text is empty. The
// other entries remain unchanged.
func WithBack(extra, text string) string { return withEntry(extra, backPrefix, text) }

// BackIn returns the `caelum-back` entry without its prefix, or an empty string. The watcher writes the entry into a
// node's Comment, and the agent copies it to Extra.
func BackIn(text string) string {
	for w := range strings.FieldsSeq(text) {
		if list, ok := strings.CutPrefix(w, backPrefix); ok {
			return list
		}
	}
	return ""
}

// backOf parses the `caelum-back` entries of all nodes. The result maps each job (see entry) to the time until which
// it is planned after all others. It ignores items that it cannot parse.
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
