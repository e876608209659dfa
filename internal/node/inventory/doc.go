// Package inventory describes a node's GPUs in Slurm's terms: the slots of gres/gpu, the profiles that the site offers,
// and N, the constant total of gres/mig. The agent uses this description, and `caelum slurm-config` converts it to
// lines for slurm.conf. The package accesses the hardware only to discover the GPUs.
//
// Files:
//
//	inventory.go  Inventory and Read, for `caelum slurm-config`; Divide, for the agent; Total, which computes N
//	counts.go     the GRES list with a node's offers (GRESLine); Slots; GuessTotal
package inventory
