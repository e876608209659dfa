package part

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"caelum/internal/slurm"
)

// After each heartbeat, the planner sends a confirmation with the digest of the node's record and of slurmctld's
// configuration to each agent. If the agent last read the same values, a pass would change nothing, so the agent omits
// its polls for Expiry. A confirmation is only advice: without it, the agent reads its record at each poll.

// NoRecord is a digest that is not the digest of any record.
const NoRecord = "-"

// Confirmation returns the text of a confirmation, for example "9f1c22d07a4be610@17 4be6109f1c22d07a". The first word
// is the planner's heartbeat, and the second one is the record's digest.
func Confirmation(beat, digest string) string { return beat + " " + digest }

// ParseConfirmation returns the heartbeat and the digest in a confirmation. ok is false if the text is not a
// confirmation.
func ParseConfirmation(text string) (beat, digest string, ok bool) {
	beat, digest, ok = strings.Cut(text, " ")
	return beat, digest, ok && beat != "" && digest != ""
}

// Digest returns a digest of those values in a node's record and in slurmctld's configuration on which a pass depends.
// An agent uses the configuration to determine which users may see other users' jobs, and whether to publish the jobs
// that hold its slices. The values do not include the heartbeat, which changes every few seconds, or the difference
// between the states IDLE, MIXED and ALLOCATED, which may be old in a record that an agent has read
// (slurm.Options.Show).
func Digest(n slurm.Node, c slurm.Config) string {
	var states []string
	for _, s := range n.States {
		if s == "MIXED" || s == "ALLOCATED" {
			s = "IDLE"
		}
		states = append(states, s)
	}
	slurmUser, known := c.SlurmUser()
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %v %v %d %v %d %d %q %q %q %v %v %d %v", n.Name, states, n.Gres,
		n.GresUsed, n.MIGTotal, n.Unregistered, n.BootTime.Unix(), n.SlurmdStartTime.Unix(), n.Extra, n.Version,
		withEntry(n.Comment, beatPrefix, ""), c.HidesJobs(), c.Preempts(), slurmUser, known))
	return hex.EncodeToString(sum[:8])
}
