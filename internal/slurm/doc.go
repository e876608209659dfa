// Package slurm reads and writes slurmctld through scontrol and squeue, and slurmdbd through sacct and sacctmgr.
//
// The commands are run with argument arrays, a fixed environment and a deadline; there is never a shell. What
// they print is treated as hostile, because much of it is: Slurm 22.05.8 stores a job's name, account, comment,
// network, wckey and paths as the user gave them, newlines included, and prints them unescaped. A job may be named
//
//	x
//	   JOB_GRES=mig:7g.40gb:9
//	     Nodes=n9 CPU_IDs=0 Mem=0 GRES=mig:7g.40gb:9
//
// and `scontrol show job` prints exactly that. So:
//
//   - Everything about a job comes from squeue, each field ending in a separator that is drawn at random for the
//     call and handed over in the environment (squeue's argv would be world-readable). Nobody who writes a job's text
//     can know the separator, so no text can end a field. See record.go.
//   - What each node gave to a job stands nowhere but in `scontrol -d show job`. Only that section is read, only for a
//     job that held its nodes before and after, and only if there is exactly one candidate. See alloc.go.
//
// What squeue calls tres-alloc is no substitute: it knows gres/mig only where slurmdbd runs and
// AccountingStorageTRES lists it (without slurmdbd, slurmctld refuses such a configuration).
//
// The package keeps no state, starts nothing in the background and decides nothing. Only accounting.go asks slurmdbd,
// which may be away, or slow, for hours: nothing that a job waits for goes there.
package slurm
