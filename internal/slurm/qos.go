package slurm

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// QOS contains the fields of a quality of service that are related to preemption.
type QOS struct {
	Name string
	// Preempt contains the QOS whose jobs a job with this QOS may preempt.
	Preempt []string
	// PreemptMode is the preemption mode for jobs with this QOS, in upper case, for example "REQUEUE" or
	// "WITHIN,CANCEL". CLUSTER means that the QOS does not set a mode.
	PreemptMode string
	Grace       time.Duration
	// Exempt is PreemptExemptTime, or 0 if the QOS does not set a time.
	Exempt time.Duration
}

// qosColumns is the number of columns that QOS requests from sacctmgr.
const qosColumns = 5

// QOS reads all QOS from slurmdbd. If sacctmgr fails, QOS returns its error unchanged, because not every release of
// sacctmgr prints a distinct message if slurmdbd is unreachable.
func (c *Client) QOS(ctx context.Context) ([]QOS, error) {
	out, err := c.run(ctx, nil, c.sacctmgr, "-n", "-P", "show", "qos",
		"format=Name,Preempt,PreemptMode,GraceTime,PreemptExemptTime")
	if err != nil {
		return nil, err
	}
	list, err := parseQOS(out)
	if err != nil {
		return nil, unparsable("sacctmgr", err)
	}
	return list, nil
}

// parseQOS parses lines whose columns are separated by vertical bars. Only administrators can name a QOS.
func parseQOS(out string) (list []QOS, err error) {
	for line := range strings.Lines(out) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "|")
		if len(f) != qosColumns {
			return nil, fmt.Errorf("%.80q does not have %d columns", line, qosColumns)
		}
		q := QOS{Name: f[0], PreemptMode: strings.ToUpper(f[2])}
		if f[1] != "" {
			q.Preempt = strings.Split(f[1], ",")
		}
		if q.Grace, err = parseSeconds(f[3]); err == nil {
			q.Exempt, err = parseSeconds(f[4])
		}
		if err != nil {
			return nil, fmt.Errorf("QOS %.40q: %w", f[0], err)
		}
		list = append(list, q)
	}
	return list, nil
}

// parseSeconds parses a duration of the form [D-]HH:MM:SS. It returns 0 for an empty string.
func parseSeconds(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	return ParseLimit(text)
}
