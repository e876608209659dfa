package slurm

import (
	"slices"
	"strings"
)

// Managed reports whether Caelum manages the node's GPUs: its gres/mig includes the `closed` type.
func (n Node) Managed() bool {
	return slices.ContainsFunc(n.Gres, func(g GRES) bool { return g.Name == "mig" && g.Type == ClosedType })
}

// cataloguePrefix begins the names of the catalogue nodes that `caelum setup` creates.
const cataloguePrefix = "mig-catalog"

// Catalogue reports whether the node is a catalogue node. It should be in the FUTURE state, but a node that
// `caelum setup` has named is a catalogue node in any state.
func (n Node) Catalogue() bool {
	return n.Gres.Total("mig") > 0 && !n.Managed() && (n.Is("FUTURE") || strings.HasPrefix(n.Name, cataloguePrefix))
}

// Unmanaged reports whether the node has GPUs without slices and fixed gres/mig counts, so that jobs for which
// job_submit.lua requests slices can also start there. No agent publishes offers on such a node.
func (n Node) Unmanaged() bool { return n.Gres.Total("mig") > 0 && !n.Managed() && !n.Catalogue() }
