package oracle

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// SnapshotScript is a shell script that prints snapshots of slurmctld's state for ReadSnapshots until its stdin is
// closed. It must run on a machine where scontrol works. Each answer from scontrol shows all nodes at the same point in
// time, because slurmctld packs them under one lock.
const SnapshotScript = `
while read -r -t 0.1 _; [ $? -gt 128 ]; do
    echo "look $(date +%s%N)"
    scontrol -o -d show node
    echo "done $(date +%s%N)"
done
`

// ReadSnapshots reads the output of SnapshotScript. It skips snapshots that are truncated or have no answer from
// slurmctld.
func ReadSnapshots(r io.Reader) ([]Snapshot, error) {
	var all, now []Snapshot
	var from int64
	s := bufio.NewScanner(r)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		word, rest, _ := strings.Cut(s.Text(), " ")
		switch {
		case word == "look" || word == "done":
			at, err := strconv.ParseInt(rest, 10, 64)
			if err != nil {
				return nil, fmt.Errorf("couldn't read the snapshots: %w", err)
			}
			if word == "done" {
				for _, l := range now {
					l.From, l.To = from, at
					all = append(all, l)
				}
			}
			from, now = at, nil
		case strings.HasPrefix(word, "NodeName="):
			l := Snapshot{Node: strings.TrimPrefix(word, "NodeName=")}
			for _, w := range strings.Fields(rest) {
				key, value, _ := strings.Cut(w, "=")
				switch key {
				case "Gres":
					l.Total = slicesOf(value)
				case "GresUsed":
					l.Used = slicesOf(value)
				case "State":
					l.States = strings.Split(value, "+")
				}
			}
			now = append(now, l)
		}
	}
	return all, s.Err()
}

// shut reports whether the node's state in the snapshot prevents slurmctld from starting jobs there.
func (l Snapshot) shut() bool {
	for _, s := range l.States {
		switch strings.TrimRight(s, "*") {
		case "COMPLETING", "DOWN", "DRAIN", "FAIL", "NOT_RESPONDING", "INVALID_REG":
			return true
		}
	}
	return false
}
