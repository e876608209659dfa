package part

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// version is the version of the format. An agent makes its own plan if a part has a different version.
const version = "1"

// maxItems is the maximum number of items that Parse accepts. A node has at most 16 GPUs with at most 12 units each.
const maxItems = 4096

// Text returns a part as a string without spaces. It consists of items separated by semicolons, beginning with the
// version.
//
//	beat/n1                        the node whose Comment has the heartbeat
//	offer/0:1g.5gb@6               an offer: GPU, profile and start
//	offer/0:2g.20gb@0/2g.10gb      an offer under the name of another profile
//	job/17/0/0:1g.5gb@6,0:1g.5gb@5 a job, the id of its array or 0, and the spots that the plan assigns to it
//	held/18,19                     jobs whose records the agent must read
//	stray/20                       components of het jobs that the agent must hold
//	reserved/21/1763790000/0:7g.40gb@0  a reservation: job, start (Unix seconds) and spots
func (p Part) Text() string {
	items := []string{version, "beat/" + p.Beat}
	for _, o := range p.Offers {
		text := "offer/" + o.Spot.String()
		if o.As != "" {
			text += "/" + o.As
		}
		items = append(items, text)
	}
	for _, j := range p.Jobs {
		items = append(items, fmt.Sprintf("job/%d/%d/%s", j.ID, j.Array, spotList(j.Spots)))
	}
	if len(p.Held) > 0 {
		items = append(items, "held/"+idList(p.Held))
	}
	if len(p.Stray) > 0 {
		items = append(items, "stray/"+idList(p.Stray))
	}
	if r := p.Reserved; r != nil {
		items = append(items, fmt.Sprintf("reserved/%d/%d/%s", r.Job, r.At, spotList(r.Spots)))
	}
	return strings.Join(items, ";")
}

// String returns a spot in the form 0:1g.5gb@6.
func (s Spot) String() string { return fmt.Sprintf("%d:%s@%d", s.GPU, s.Profile, s.Start) }

func spotList(spots []Spot) string {
	all := make([]string, len(spots))
	for i, s := range spots {
		all[i] = s.String()
	}
	return strings.Join(all, ",")
}

func idList(ids []uint32) string {
	all := make([]string, len(ids))
	for i, id := range ids {
		all[i] = strconv.FormatUint(uint64(id), 10)
	}
	return strings.Join(all, ",")
}

// Parse parses a part in the form returned by Text.
func Parse(text string) (p Part, err error) {
	items := strings.Split(text, ";")
	if items[0] != version || len(items) > maxItems {
		return p, fmt.Errorf("%.20q is not a part of version %s", text, version)
	}
	for _, item := range items[1:] {
		kind, rest, _ := strings.Cut(item, "/")
		if err := p.set(kind, strings.Split(rest, "/")); err != nil {
			return Part{}, fmt.Errorf("%.80q: %w", item, err)
		}
	}
	return p, nil
}

var errFields = errors.New("unknown item or wrong number of fields")

func (p *Part) set(kind string, fields []string) (err error) {
	switch {
	case kind == "beat" && len(fields) == 1:
		p.Beat = fields[0]
	case kind == "offer" && len(fields) <= 2:
		o := Offer{}
		if len(fields) == 2 {
			o.As = fields[1]
		}
		o.Spot, err = parseSpot(fields[0])
		p.Offers = append(p.Offers, o)
	case kind == "job" && len(fields) == 3:
		j := Job{}
		err = errors.Join(number(&j.ID, fields[0]), number(&j.Array, fields[1]), spotsOf(&j.Spots, fields[2]))
		p.Jobs = append(p.Jobs, j)
	case kind == "held" && len(fields) == 1:
		p.Held, err = parseIDs(fields[0])
	case kind == "stray" && len(fields) == 1:
		p.Stray, err = parseIDs(fields[0])
	case kind == "reserved" && len(fields) == 3:
		r := Reservation{}
		r.At, err = strconv.ParseInt(fields[1], 10, 64)
		err = errors.Join(err, number(&r.Job, fields[0]), spotsOf(&r.Spots, fields[2]))
		p.Reserved = &r
	default:
		err = errFields
	}
	return err
}

func number(to *uint32, s string) error {
	n, err := strconv.ParseUint(s, 10, 32)
	*to = uint32(n)
	return err
}

func parseIDs(s string) (ids []uint32, err error) {
	for part := range strings.SplitSeq(s, ",") {
		var id uint32
		if err := number(&id, part); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, nil
}

func spotsOf(to *[]Spot, s string) error {
	if s == "" {
		return nil
	}
	for part := range strings.SplitSeq(s, ",") {
		spot, err := parseSpot(part)
		if err != nil {
			return err
		}
		*to = append(*to, spot)
	}
	return nil
}

func parseSpot(text string) (s Spot, err error) {
	gpu, rest, ok := strings.Cut(text, ":")
	profile, start, ok2 := strings.Cut(rest, "@")
	if !ok || !ok2 || profile == "" {
		return s, errFields
	}
	s.Profile = profile
	if s.GPU, err = strconv.Atoi(gpu); err != nil || s.GPU < 0 {
		return s, errFields
	}
	if s.Start, err = strconv.Atoi(start); err != nil || s.Start < 0 {
		return s, errFields
	}
	return s, nil
}
