package plan

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"caelum/internal/slurm"
)

// backWord begins the word in a node's Extra that lists the jobs that stand behind the others after their slices were
// on offer on the node: "caelum-back=123_@1700000000;124_3-5@1700000100", by job and array tasks, with the end of that
// time. Each agent counts for itself how long a job's slices are on offer; only `caelum explain`, which has not
// watched, reads the word. It is a word of its own, because an agent of an earlier release could not read a node's
// state with an unknown item in it.
const backWord = "caelum-back="

const (
	// maxBack limits the jobs in a node's word.
	maxBack = 32
	// maxEntry limits the length of an entry: the list of an array's tasks can be long. A longer one is left out.
	maxEntry = 40
)

// Back returns the word's text for a node: the jobs that stand behind the others at this time; empty if there are
// none.
func (u *Unstarted) Back(node string, at time.Time) string {
	var all []string
	for id, job := range u.jobs {
		if at.Before(job.until) && slices.Contains(job.on, node) && len(id) <= maxEntry {
			all = append(all, fmt.Sprintf("%s@%d", id, job.until.Unix()))
		}
	}
	slices.Sort(all)
	return strings.Join(all[:min(len(all), maxBack)], ";")
}

// IntoBack replaces the word in a node's Extra, and leaves the other words. An empty text takes it out.
func IntoBack(extra, text string) string {
	words := slices.DeleteFunc(strings.Fields(extra), func(w string) bool { return strings.HasPrefix(w, backWord) })
	if text != "" {
		words = append(words, backWord+text)
	}
	return strings.Join(words, " ")
}

// backOf reads the words of all nodes: by entry, until when it stands behind the others. What cannot be read is left
// out.
func backOf(nodes []slurm.Node) map[string]time.Time {
	back := map[string]time.Time{}
	for _, n := range nodes {
		for w := range strings.FieldsSeq(n.Extra) {
			list, _ := strings.CutPrefix(w, backWord)
			if list == w {
				continue
			}
			for one := range strings.SplitSeq(list, ";") {
				id, end, _ := strings.Cut(one, "@")
				if unix, err := strconv.ParseInt(end, 10, 64); err == nil && time.Unix(unix, 0).After(back[id]) {
					back[id] = time.Unix(unix, 0)
				}
			}
		}
	}
	return back
}
