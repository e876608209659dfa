package jobsubmit

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"caelum/internal/decisions"
)

// claimed returns the compute slices and the gigabytes in the name of a plain profile, or 0.
func claimed(profile string) (compute, gb int) {
	if m := regexp.MustCompile(`^([1-9][0-9]?)g\.([1-9][0-9]{0,3})gb$`).FindStringSubmatch(profile); m != nil {
		compute, _ = strconv.Atoi(m[1])
		gb, _ = strconv.Atoi(m[2])
	}
	return compute, gb
}

// wholeOf returns the largest numbers of the GPU models that have a profile, and of slices on a node.
func wholeOf(d decisions.Table, profile string) (compute, gb, slots int) {
	for _, of := range d.Models {
		if !slices.Contains(of, profile) {
			continue
		}
		for _, name := range of {
			c, m := claimed(name)
			compute, gb = max(compute, c), max(gb, m)
			if most := mostOf(d, name); most < 65533 {
				slots = max(slots, most)
			}
		}
	}
	return compute, gb, slots
}

// share returns the CPUs and MiB per slice of a job that requests none, or 0.
func share(q fields, d decisions.Table, profile string) (cpus, mib int) {
	cpus, mib = 65533, 1e9
	comma := func(c rune) bool { return c == ',' }
	for name := range strings.FieldsFuncSeq(cmp.Or(text(q, "partition"), "gpu"), comma) {
		own := d.PerGPU[name]
		cpus, mib = min(cpus, own.CPUs), min(mib, own.MiB)
	}
	compute, gb := claimed(profile)
	if ofCompute, ofGB, _ := wholeOf(d, profile); compute > 0 && ofCompute > 0 {
		if cpus > 0 {
			cpus = max(1, cpus*compute/ofCompute)
		}
		if mib > 0 {
			mib = max(1, mib*gb/ofGB)
		}
	}
	if text(q, "cpus_per_tres") != "" || set(q, "cpus_per_task") > 0 {
		cpus = 0
	}
	if text(q, "mem_per_tres") != "" || q["min_mem_per_node"] != nil || q["min_mem_per_cpu"] != nil {
		mib = 0
	}
	return cpus, mib
}

var memoryWord = regexp.MustCompile(`^gres[:/]gpu[:=]([1-9][0-9]{0,8})$`)

// onWholeNodes returns the CPUs and MiB per GPU of a job with whole nodes, which has all slots of its nodes.
func onWholeNodes(q fields, d decisions.Table, profile string, gpus, cpus, mib int) (int, int) {
	_, _, slots := wholeOf(d, profile)
	whole := q["shared"] == 0.0 || slices.Contains(strings.Split(text(q, "partition"), ","), "gpu-long")
	if slots <= gpus || !whole {
		return cpus, mib
	}
	if m := memoryWord.FindStringSubmatch(text(q, "mem_per_tres")); m != nil {
		mib, _ = strconv.Atoi(m[1])
	}
	if m := cpusWord.FindStringSubmatch(text(q, "cpus_per_tres")); m != nil && inRange(m[3]) > 0 {
		cpus = inRange(m[3])
	}
	if cpus > 0 {
		cpus = max(1, cpus*gpus/slots)
	}
	return cpus, (mib*gpus + slots - 1) / slots
}
