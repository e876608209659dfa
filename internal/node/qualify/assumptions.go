package qualify

// assumption is a statement about the driver on which Caelum rests. docs/driver.md explains each of them.
type assumption struct {
	id, text string
	// action says what Caelum does, or what the site has to do, if the statement is false on a node.
	action string
	// blocks is true if Caelum must not manage a node on which the statement is false.
	blocks bool
	// never is the reason why no run can check the statement.
	never string
}

// assumptions is in the order of docs/driver.md, and TestDriverPage compares the two.
var assumptions = []assumption{
	{id: "A1", text: "compute instance calls succeed once the GPU instance's capability file exists", blocks: true,
		action: "no slice can be created; report the driver release"},
	{id: "A2", text: "the compute instance profile with the most SMs has all SMs and memory of the GPU instance",
		blocks: true, action: "caelum status and doctor show slices with fewer SMs; report the GPU model"},
	{id: "A3", text: "a placement has the same GPU instance id each time, on one GPU",
		action: "none is needed: the agent reads each id from the driver"},
	{id: "A4", text: "capability minors follow the formula, mig-minors and the access files agree", blocks: true,
		action: "the agent would restrict the wrong files; report the driver release"},
	{id: "A5", text: "with DeviceFileModify 0, nvidia-modprobe leaves a file's owner and mode unchanged", blocks: true,
		action: "other users could open a job's slice; report the driver release"},
	{id: "A6", text: "no other program lacks a capability file that NVreg_ModifyDeviceFiles=0 takes away", blocks: true,
		action: "start caelumd, which creates the file, and then Fabric Manager; see docs/configure/isolation.md"},
	{id: "A7", text: "mig/config and mig/monitor files made before nvmlInit permit root's calls, except those of A1",
		blocks: true, action: "the agent cannot create or watch slices; see the permissions of /dev/nvidia-caps"},
	{id: "A8", text: "the driver uses the requested placement, and refuses an occupied one with INSUFFICIENT_RESOURCES",
		blocks: true, action: "the agent's layout would differ from the GPU's; report the driver release"},
	{id: "A9", text: "the driver refuses a placement that overlaps an instance of another size", blocks: true,
		action: "two slices could share memory; report the driver release"},
	{id: "A10", text: "an instance in use cannot be destroyed, and the caller's own session does not use it",
		blocks: true, action: "the agent could remove a running job's slice; report the driver release"},
	{id: "A11", text: "an open descriptor of a capability file alone does not prevent a destroy",
		action: "the agent reports the slice as stuck until the process closes the file"},
	{id: "A12", text: "a process that uses a slice is in the driver's process list or has the slice's file open",
		action: "the agent makes the compute instance again between two users, which fails while it is used"},
	{id: "A13", text: "root's process list has the GPU and compute instance ids of all users' processes",
		action: "caelum usage and the check for foreign processes miss these processes"},
	{id: "A14", text: "without mig/monitor, a user cannot read the processes and the memory of other slices",
		action: "users can see other users' process ids and memory sizes"},
	{id: "A15", text: "the list of GPU instances is current after another program's change", blocks: true,
		action: "the agent could offer occupied units; report the driver release"},
	{id: "A16", text: "the driver overwrites freed GPU memory unless RMDisableScrubOnFree is set", blocks: true,
		action: "remove RMDisableScrubOnFree from NVreg_RegistryDwords in /etc/modprobe.d and reboot"},
	{id: "A17", text: "a MIG UUID has version 5 and is new for each instance; MIG devices are in the order of ids",
		action: "a job script that kept a UUID could reach a later slice; the agent itself keeps none"},
	{id: "A18", text: "the MIG mode switches at once, or with a reset by the driver, and a pending switch is revocable",
		action: "set whole_gpus: never in caelum.yaml, the default"},
	{id: "A19", text: "after MIG mode is off, the GPU's fabric state becomes Completed",
		action: "the agent does not hand out the full GPU before; check Fabric Manager"},
	{id: "A20", text: "instances are gone after a reboot", never: "needs a reboot",
		action: "the agent treats restored instances as foreign; see caelum adopt"},
	{id: "A21", text: "instances survive the last client's exit without persistence mode",
		action: "the agent finds its slices gone and makes them again; turn persistence mode on"},
	{id: "A22", text: "creating or destroying an instance takes at most 2 s, and a list of instances 0.5 s",
		action: "prologs take longer; compare PrologEpilogTimeout with the times in the record"},
	{id: "A23", text: "the driver reports each profile with the id, the starts and the memory of Caelum's table",
		action: "the agent uses the driver's values; simulations use the table, so send the record"},
	{id: "A24", text: "the driver's instance count of a profile is right",
		action: "the agent uses the number of starts as a limit"},
	{id: "A25", text: "the GPM metric SM_UTIL is the share of the instance's SMs",
		never:  "needs a program that loads all SMs of a slice on Hopper or later",
		action: "caelum usage and report show a wrong utilization"},
	{id: "A26", text: "mode 0600 of /dev/nvidiaN keeps other users out, and nvidia-modprobe obeys ModifyDeviceFiles",
		action: "set whole_gpus: never in caelum.yaml, the default"},
	{id: "A27", text: "a process that has /dev/nvidiaN open prevents a MIG mode switch",
		action: "set whole_gpus: never in caelum.yaml, the default"},
	{id: "A28", text: "the devices cgroup restricts only open(), and the driver checks a descriptor no further",
		never:  "needs a process in a job's cgroup",
		action: "ConstrainDevices would protect more than docs/security.md says"},
	{id: "A29", text: "the id of a full compute instance is 0",
		action: "the agent restricts the file of the id that the driver reports; see also A4"},
	{id: "A30", text: "the calls for a lost GPU return GPU_IS_LOST", never: "needs a defective GPU",
		action: "the agent reports the GPU's error and withdraws its slices"},
	{id: "A31", text: "a GPU has no NVLink peers while MIG mode is on",
		action: "jobs could see peers that they cannot use"},
	{id: "A32", text: "the driver reports Xid errors as events, with the GPU instance", never: "needs an error",
		action: "watch the kernel log for Xid errors"},
}
