package jobsubmit

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"caelum/internal/controller/decisions"
)

var claimedWord = regexp.MustCompile(`^([1-9][0-9]?)g\.([1-9][0-9]{0,3})gb$`)

// claimed returns the compute slices and the gigabytes in the name of a plain profile, or 0.
func claimed(profile string) (compute, gb int) {
	if m := claimedWord.FindStringSubmatch(profile); m != nil {
		compute, _ = strconv.Atoi(m[1])
		gb, _ = strconv.Atoi(m[2])
	}
	return compute, gb
}

// wholeOf returns the largest numbers of the GPU models that have a profile.
func wholeOf(d decisions.Table, profile string) (compute, gb int) {
	for _, of := range d.Models {
		if !slices.Contains(of, profile) {
			continue
		}
		for _, name := range of {
			c, m := claimed(name)
			compute, gb = max(compute, c), max(gb, m)
		}
	}
	return compute, gb
}

// divided returns n of k equal parts of a number, which is at least 1 unless the number is 0. An unknown k is 0.
func divided(number, n, k int) int {
	if number == 0 || k < n {
		return number
	}
	return max(1, number*n/k)
}

// share returns the CPUs and MiB per slice of a job that requests none, or 0.
func share(q fields, d decisions.Table, profile string) (cpus, mib int) {
	if q["shared"] == 0.0 || slices.Contains(strings.Split(text(q, "partition"), ","), "gpu-long") {
		return 0, 0 // whole nodes
	}
	cpus, mib = 65533, 1e9
	comma := func(c rune) bool { return c == ',' }
	for name := range strings.FieldsFuncSeq(cmp.Or(text(q, "partition"), "gpu"), comma) {
		own := d.PerGPU[name]
		cpus, mib = min(cpus, own.CPUs), min(mib, own.MiB)
	}
	compute, gb := claimed(profile)
	if ofCompute, ofGB := wholeOf(d, profile); compute > 0 && ofCompute > 0 {
		if cpus > 0 {
			cpus = max(1, cpus*compute/ofCompute)
		}
		if mib > 0 {
			mib = max(1, mib*gb/ofGB)
		}
	}
	if m := fractionWord.FindStringSubmatch(profile); m != nil {
		n, _ := strconv.Atoi(m[1])
		cpus, mib = divided(cpus, n, d.Units[profile]), divided(mib, n, d.Units[profile])
	}
	if text(q, "cpus_per_tres") != "" || set(q, "cpus_per_task") > 0 {
		cpus = 0
	}
	if text(q, "mem_per_tres") != "" || q["min_mem_per_node"] != nil || q["min_mem_per_cpu"] != nil {
		mib = 0
	}
	return cpus, mib
}
