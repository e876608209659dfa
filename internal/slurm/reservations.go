package slurm

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Reservation is a currently active reservation.
type Reservation struct {
	Name string
	// Whole is true if the reservation covers all CPUs of its nodes and is not MAGNETIC, so only jobs that request it
	// can run there.
	Whole bool
}

// reserve parses the output of `scontrol show reservation`, which only administrators can change, and adds each
// active reservation to the nodes that it includes.
func reserve(nodes []Node, out string) error {
	for record := range strings.SplitSeq("\n"+out, "\nReservationName=") {
		name, rest, ok := strings.Cut(record, " ")
		if !ok {
			continue
		}
		var hosts []string
		var err error
		cpus, active, magnetic := 0, false, false
		for w := range strings.FieldsSeq(rest) {
			switch key, value, _ := strings.Cut(w, "="); key {
			case "Nodes":
				hosts, err = ExpandHosts(orEmpty(value))
			case "State":
				active = value == "ACTIVE"
			case "Flags":
				magnetic = slices.Contains(strings.Split(value, ","), "MAGNETIC")
			case "TRES":
				for t := range strings.SplitSeq(value, ",") {
					if n, ok := strings.CutPrefix(t, "cpu="); ok {
						cpus, err = strconv.Atoi(n)
					}
				}
			}
			if err != nil {
				return fmt.Errorf("reservation %s: %w", name, err)
			}
		}
		if !active {
			continue
		}
		have := 0
		for _, n := range nodes {
			if slices.Contains(hosts, n.Name) {
				have += n.CPUs
			}
		}
		for i := range nodes {
			if slices.Contains(hosts, nodes[i].Name) {
				nodes[i].Reservations = append(
					nodes[i].Reservations,
					Reservation{Name: name, Whole: cpus >= have && !magnetic},
				)
			}
		}
	}
	return nil
}
