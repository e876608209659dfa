// Command caelum is the command-line client of Caelum. It shows the state of a node's agent, explains why jobs are
// waiting, prints the configuration that Slurm needs, and calculates and simulates how GPUs can be partitioned. Only
// caelumd creates and destroys GPU instances and changes nodes in slurmctld.
//
// Files:
//
// All commands:
//
//	main.go                 root command, exit statuses, calls to the agent (callTimeout 10 s), JSON output, plurals
//	version.go              caelum version
//	complete.go             the values that the shell completes: GPU models, profiles, policies, jobs
//	models.go               for profiles and simulate: GPU models by name, tables
//
// Jobs and the node:
//
//	status.go               caelum status on a node; also replaces unprintable characters (printable)
//	nodes.go                caelum status on other hosts, --all, NODE: reads the nodes from slurmctld
//	nodes_print.go          caelum status and top: the lines for all nodes or for one node (package overview)
//	top.go                  caelum top: flags, limits of the load on slurmctld, reading
//	top_screen.go           caelum top: the screen, keys and refreshes
//	job.go                  caelum job
//	explain.go              caelum explain; also parses job ids (12_3, 12+1) for all commands, and defines slurmTimeout
//	adopt.go                caelum adopt
//	xid.go                  caelum readmit; the text of Xid errors for status, job and report
//	doctor.go               caelum doctor
//	owner.go                root's commands continue as SlurmUser to change SlurmUser's files
//	decisions.go            caelum decisions check and set: the decision table of job_submit.lua
//	decisions_bypass.go     caelum decisions bypass and remove
//	decisions_partitions.go warnings about partitions that slurmctld does not have
//	convert_jobs.go         caelum convert-jobs: the slices of jobs that wait while a site is converted, and back
//	setup.go                caelum setup: flags, the patch that merges slurm-config's output into the site's files
//	setup_convert.go        caelum setup --apply, --undo: begins, continues or turns around a conversion
//	setup_small.go          what a small default profile would bring, according to the recorded runs
//	setup_steps.go          the steps of a conversion and of the way back
//	setup_state.go          the stored conversions (setup.json); replaces and restores files
//	slurm_config.go         caelum slurm-config; the text is in slurm_config.tmpl
//	report.go               caelum report: reads the records of a job, or of the caller's latest jobs, from slurmdbd
//	report_print.go         caelum report: prints a job, the tasks of an array, or a list of jobs (package jobreport)
//	usage.go                caelum usage: reads the records from slurmdbd and prints the totals of package gpuhours
//	usage_saved.go          caelum usage --saved: the table and the page of what slices saved (package jobreport)
//	usage_replay.go         caelum usage --saved: simulates the waits with slices and with whole GPUs (mostReplayed)
//
// Earlier runs:
//
//	predict.go              caelum predict: calculates and prints a job's prediction
//	predict_job.go          caelum predict: finds the job by its id, key or script
//	repo.go                 caelum repo: opens the repository and the table; reads the caller's own runs from slurmdbd
//	repo_list.go            caelum repo list and show; prints runs
//	repo_maintain.go        caelum repo export, import, sync and decisions (dbdTimeout 5 minutes)
//	repo_forget.go          caelum repo forget
//	profile_job.go          caelum profile-job: flags, and the profiles and GPU model to measure
//	profile_run.go          caelum profile-job: submits the jobs and waits for their runs (pollInterval, summaryWait)
//	profile_measurement.go  caelum profile-job: the measurements, their speeds and their table
//
// Planning without an agent:
//
//	profiles.go             caelum profiles
//	simulate.go             caelum simulate: help, flags; runs the policies and their simulations
//	simulate_options.go     caelum simulate: flag combinations, default policies, the cluster (--gpus), --ends
//	simulate_workload.go    caelum simulate: the workload of --churn, --sacct, --from-sacct
//	simulate_observed.go    caelum simulate: the workload of --observed
//	simulate_result.go      caelum simulate: the result as JSON, the lines above the table, HTML page
//	simulate_print.go       caelum simulate: the table and its columns, progress
package main
