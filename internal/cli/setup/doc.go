// Package setup computes the changes to a site's Slurm configuration that Caelum needs, as a unified patch. `caelum
// setup --diff` prints this patch. The package does not write any files. Its caller supplies a function that reads the
// site's files. For `caelum setup --apply`, which writes them, the package decides what is missing for each step.
//
// The lines that Caelum needs come from `caelum slurm-config`. Package setup merges them into the existing files: it
// adds values to lists, changes the nodes' Gres= values, adds the catalogue nodes to the partitions, replaces the GPUs'
// lines in gres.conf, makes the site's job_submit.lua call Caelum's functions, and adds the partitions, profiles and
// GPU models to the decision table. It changes only the bytes of these values, so comments, continuation lines, line
// endings (including CRLF) and the order of the lines are preserved. If Caelum's lines are already in the files, the
// patch is empty.
//
// The GPUs keep the types that the site gave them. Setup removes only the GPUs of the inventory and MIG instances with
// a fixed layout, because Caelum's entries replace them, and shards of GPUs that get fractions.
//
// Merge reports a Problem, with its file and line, for each construct that it cannot change safely, such as a value
// that continues on another line. A caller must not print a patch if there are problems.
//
// # Conversions
//
// A step is complete when slurmctld or the files show it, so that each step can be repeated. cmd/caelum stores the
// conversion before each step, and before the first change in a step.
//
//	step       complete when                                            if it fails, or is interrupted
//	drain      the nodes are drained, and no job holds their GPUs       waits; --undo resumes the nodes
//	files      each file has its new content                            nothing is written if a file has changed
//	slurmctld  its start time differs from that before the first file   waits; --undo begins with the files
//	slurmd     every slurmd that answers has another start time; the    waits, and names the nodes and the reason
//	           converted nodes are registered, and have an agent
//	jobs       convert-jobs finds no job without slices                 jobs that cannot be converted are held
//	resume     the nodes that setup drained are resumed                 nodes drained by others stay drained
//	offers     a converted node offers slices                           waits
//	doctor     the checks of slurmctld's host find no error             the next --apply checks again
//
// The way back is drain, jobs, files, slurmctld, slurmd, resume. It begins with the files if slurmctld may not be able
// to start with the new ones, and stops at a file with other changes until the administrator has corrected it. If an
// old slurmd has registered its slots after slurmctld's restart, slurmctld must restart once more.
//
// slurmctld reads a changed job_submit.lua at once, but gres/mig only when it restarts: in between, it would refuse the
// jobs to which the script adds slices. An existing job_submit.lua is therefore written after the restart, and
// restored before the jobs are changed back.
//
// Files:
//
//	merge.go       Merge, with its Request and Result; problems and notes
//	conf.go        the syntax of slurm.conf and gres.conf: continuation lines, comments, key=value pairs, Include
//	edit.go        the changes to one file, as replacements of byte ranges
//	split.go       lines that describe both managed and other nodes
//	site.go        the site's NodeName lines, and the GPUs in their Gres=
//	types.go       the GPU types: which of them are the GPUs of the inventory, which are MIG instances, which are kept
//	parameters.go  slurm.conf: the parameters that apply to the whole cluster
//	nodes.go       slurm.conf: Gres= of the managed nodes
//	shards.go      gres/shard of nodes whose GPUs get fractions
//	catalogue.go   slurm.conf: the catalogue nodes of each kind of managed node
//	trial.go       slurm.conf: the trial's node leaves its partitions for one of its own
//	partitions.go  slurm.conf: the nodes of each partition; the catalogue nodes in the partitions
//	unmanaged.go   slurm.conf: Gres= of the unmanaged GPU nodes
//	limits.go      notes about settings for each GPU: DefCpuPerGPU, DefMemPerGPU, TRESBillingWeights, PriorityWeightTRES
//	gresconf.go    gres.conf
//	plugins.go     plugstack.conf and job_submit.lua
//	decisions.go   the decision table
//	patch.go       Patch, which writes the changes as a unified patch
//	conversion.go  Conversion: the progress of --apply, and what slurmctld's records show of each step
package setup
