package plan

import (
	"slices"
	"strconv"
	"strings"

	"caelum/internal/place"
)

// nvlinkPrefix is the prefix of the entry caelum-nvlink in a node's Extra. The entry lists the groups of GPUs that
// NVLinks connect, for example "caelum-nvlink=0,1;2,3". A node has no entry if NVLinks connect no GPUs or all GPUs, or
// if the agent does not know the NVLinks. The groups are not part of the node state, because agents of earlier releases
// reject a node state that contains an unknown item. Agents that ignore the entry plan other GPUs of the same nodes.
const nvlinkPrefix = "caelum-nvlink="

// WithNVLink returns a node's Extra with the groups of the GPUs as the entry caelum-nvlink. The other entries remain
// unchanged. If the GPUs have no groups, WithNVLink removes the entry.
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

// setNVLink sets the groups of a node's GPUs from the node's Extra. setNVLink ignores an entry that names an unknown
// GPU or a GPU twice, because an administrator can change Extra.
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
