package plan

import (
	"slices"
	"strconv"
	"strings"

	"caelum/internal/core/place"
)

// nvlinkPrefix is the prefix of the `caelum-nvlink` entry in a node's Extra. It lists the groups of GPUs that are
// connected by NVLinks, for example "caelum-nvlink=0,1;2,3". A node has no entry if NVLinks connect none or all of its
// GPUs, or if its agent does not know which GPUs are connected. The groups are not part of the node state, because
// agents from earlier releases reject a state with an unknown item. Agents that ignore the entry plan other GPUs on the
// same nodes.
const nvlinkPrefix = "caelum-nvlink="

// WithNVLink returns a node's Extra with the GPUs' groups as its `caelum-nvlink` entry, or without this entry if
// there are no groups. The other entries remain unchanged.
func WithNVLink(extra string, gpus []place.GPU) string {
	var groups []string
	var seen []int
	for _, g := range gpus {
		if g.NVLink == 0 || slices.Contains(seen, g.NVLink) {
			continue
		}
		seen = append(seen, g.NVLink)
		var members []string
		for k, o := range gpus {
			if o.NVLink == g.NVLink {
				members = append(members, strconv.Itoa(k))
			}
		}
		groups = append(groups, strings.Join(members, ","))
	}
	return withEntry(extra, nvlinkPrefix, strings.Join(groups, ";"))
}

// setNVLink sets the groups of a node's GPUs from its Extra. Because administrators can change Extra, an entry that
// names an unknown GPU, or names a GPU twice, is ignored.
func setNVLink(gpus []place.GPU, extra string) {
	text := ""
	for w := range strings.FieldsSeq(extra) {
		if t, ok := strings.CutPrefix(w, nvlinkPrefix); ok {
			text = t
		}
	}
	if text == "" {
		return
	}
	group := make([]int, len(gpus))
	for number, members := range strings.Split(text, ";") {
		for member := range strings.SplitSeq(members, ",") {
			k, err := strconv.Atoi(member)
			if err != nil || k < 0 || k >= len(gpus) || group[k] != 0 {
				return
			}
			group[k] = number + 1
		}
	}
	for k := range gpus {
		gpus[k].NVLink = group[k]
	}
}
