package part

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"caelum/internal/slurm"
)

// After each heartbeat, the planner sends a confirmation with the digest of the node's record to each agent. If the
// agent last read the same record, a pass would change nothing, so the agent omits its polls for Expiry. A confirmation
// is only advice: without it, the agent reads its record at each poll.

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

// Digest returns a digest of those values in a node's record on which a pass depends. They do not include the
// heartbeat, which changes every few seconds.
func Digest(n slurm.Node) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %v %v %d %v %d %d %q %q %q", n.Name, n.States, n.Gres, n.GresUsed,
		n.MIGTotal, n.Unregistered, n.BootTime.Unix(), n.SlurmdStartTime.Unix(), n.Extra, n.Version,
		withEntry(n.Comment, beatPrefix, "")))
	return hex.EncodeToString(sum[:8])
}
