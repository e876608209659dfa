/*
 * Sets a task's devices: converts the slots that Slurm bound to the task, or to its step, into the MIG UUIDs in the
 * job's lease.
 *
 * Both task callbacks run in a child that was forked from a multi-threaded process, so they allocate no memory, start
 * no threads and take no locks. The user's limits (ulimit) do not apply yet, because Slurm sets them immediately before
 * the exec.
 *
 * task_init_privileged reads the lease file, which only root can read, and denies the step access to other jobs'
 * slices. task_init then sets the environment. It is the last callback before the site's TaskProlog, and the only one
 * that runs after Slurm has bound slots to individual tasks. task_init_privileged records its errors, and task_init
 * reports them, because its messages appear on the user's stderr.
 */
#include "bind.h"
#include "config.h"
#include "cgroup.h"
#include "devices.h"
#include "growth.h"
#include "lease.h"
#include "plugin.h"
#include "slots.h"

#include <errno.h>
#include <slurm/slurm.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LIST_MAX (LEASE_SLOTS_MAX * 4)
#define BINDING_MAX 4096 /* the text of --gpu-bind; a list of masks for 256 tasks needs about 3 kB */

/* The device file of a slot in gres.conf. slurmd numbers the slots in the order of their device files in gres.conf. */
#define SLOT_DEVICE "/dev/caelum/slot%u"

static struct {
	bool bound;       /* Slurm has bound slots to the step */
	const char *list; /* the environment variable with the list of the step's slots */
	uint32_t job;
	bool growth;  /* the plugin's memory_growth argument */
	bool visible; /* the plugin's nvidia_visible argument */
	struct slots step;
	struct lease lease;
	struct devices devices;
	char error[1280];
} task;

static void fail(const char *reason)
{
	snprintf(task.error, sizeof(task.error), "%s", reason);
}

/*
 * Returns the name of the environment variable that lists the step's slots. Slurm sets SLURM_JOB_GPUS for the batch
 * script and for salloc's shell, and SLURM_STEP_GPUS for all other steps. Both variables may be set, because a job
 * inherits the environment of the job or step that submitted it.
 */
static const char *list_of(spank_t sp)
{
	uint32_t step = 0;

	spank_get_item(sp, S_JOB_STEPID, &step);
	return step == SLURM_BATCH_SCRIPT || step == SLURM_INTERACTIVE_STEP ? "SLURM_JOB_GPUS" : "SLURM_STEP_GPUS";
}

/*
 * Reads the list of slots from the task's environment. Returns 1 for a valid list, 0 if Slurm set none, and -1 for an
 * invalid one.
 */
static int read_slots(spank_t sp, struct slots *slots)
{
	char text[LIST_MAX];
	spank_err_t rc = spank_getenv(sp, task.list, text, sizeof(text));

	if (rc == ESPANK_ENV_NOEXIST)
		return 0;
	return rc == ESPANK_SUCCESS && slots_parse(slots, text) ? 1 : -1;
}

static void check_lease(spank_t sp)
{
	uid_t uid = 0;
	uint32_t restart = 0;

	if (task.lease.job != task.job || spank_get_item(sp, S_JOB_UID, &uid) != ESPANK_SUCCESS || task.lease.uid != uid)
		fail("the lease file belongs to another job; "
		     "submit the job again, and ask an administrator to run 'caelum status' on this node");
	/*
	 * Up to 26.05, the restart count from SPANK is always 0, because SPANK reads a field that slurmstepd never sets. A
	 * restart count of 0 is therefore not compared with the lease.
	 */
	else if (spank_get_item(sp, S_SLURM_RESTART_COUNT, &restart) == ESPANK_SUCCESS && restart && restart != task.lease.restart)
		fail("the lease file belongs to an earlier run of this job; "
		     "submit the job again, and ask an administrator to run 'caelum status' on this node");
	else if (task.lease.error[0])
		fail(task.lease.error);
}

/* Reads the lease for a task that has slots. */
static void read_lease(spank_t sp, const struct config *config)
{
	char path[256], why[256];

	snprintf(path, sizeof(path), "%s/jobs/%u", config->run_dir, task.job);
	if (lease_read(&task.lease, path, why, sizeof(why)) < 0)
		snprintf(task.error, sizeof(task.error),
			 "couldn't read the lease file %s: %s; "
			 "submit the job again, and ask an administrator to run 'caelum status' on this node",
			 path, why);
	else
		check_lease(sp);
}

/*
 * Reads the devices that a task without slots may open: those of its job's slices, or none without a valid lease file.
 */
static void read_lease_devices(const struct config *config)
{
	char path[256], why[256];

	snprintf(path, sizeof(path), "%s/jobs/%u", config->run_dir, task.job);
	if (lease_read(&task.lease, path, why, sizeof(why)) < 0 || task.lease.job != task.job) {
		task.lease.devices = 0;
		task.lease.cgroup = 0;
	}
}

/*
 * Checks that the job's cgroup is the one whose GPU memory is limited. A task without slots must pass as well, because
 * it could open the GPU.
 */
static bool check_cgroup(const char *mountpoint)
{
	char why[768];

	if (!task.lease.cgroup || cgroup_check_job(mountpoint, task.lease.cgroup, why, sizeof(why)) == 0)
		return true;
	snprintf(task.error, sizeof(task.error),
		 "the job's cgroup is not the one whose GPU memory is limited (%s); "
		 "submit the job again, and ask an administrator to run 'caelum doctor' on this node",
		 why);
	return false;
}

/*
 * Checks the job's cgroup, and denies the step access to other jobs' slices. A task with slots fails on any error. A
 * task without slots fails if its job has another cgroup or if the kernel returns an error; an error in the node's
 * configuration (CGROUP_NONE) is only logged.
 */
static void confine(const struct config *config)
{
	char path[256], why[1024];
	int rc = CGROUP_NONE;
	bool listed, absent;

	snprintf(path, sizeof(path), "%s/devices", config->run_dir);
	listed = devices_read(&task.devices, path, why, sizeof(why)) == 0;
	absent = !listed && errno == ENOENT; /* without ConstrainDevices=yes, the agent writes no device list */
	if (!check_cgroup(listed ? task.devices.cgroup : CGROUP_MOUNTPOINT) || absent)
		return;
	if (listed)
		rc = cgroup_refuse(&task.devices, &task.lease, why, sizeof(why));
	/*
	 * The task may start, because the owners of the device files still separate users. `caelum doctor` warns the
	 * administrator.
	 */
	if (rc == CGROUP_UNSUPPORTED)
		slurm_info("caelum: task: job %u: this kernel does not support cgroup device BPF programs: %s", task.job, why);
	else if (rc < 0 || (rc == CGROUP_NONE && task.bound))
		snprintf(task.error, sizeof(task.error),
			 "couldn't deny this job access to other jobs' slices (%s): %s; "
			 "ask an administrator to run 'caelum doctor' on this node",
			 path, why);
	else if (rc == CGROUP_NONE)
		slurm_error("caelum: task: couldn't deny job %u access to other jobs' slices (%s): %s", task.job, path, why);
}

/*
 * Reports whether one of the step's GPUs is a slot. A node can also have GPUs that Slurm allocates without slices
 * (gpu:whole:1 in docs/configure/isolation.md). They have no slot device file, and Slurm's environment is correct for
 * them.
 */
static bool has_slot(const struct slots *slots)
{
	for (unsigned i = 0; i < slots->n; i++) {
		char path[64];

		snprintf(path, sizeof(path), SLOT_DEVICE, slots->slot[i]);
		if (access(path, F_OK) == 0 || errno != ENOENT)
			return true;
	}
	return false;
}

int caelum_task_privileged(spank_t sp, int ac, char **av)
{
	struct config config;
	char why[256];
	int config_rc = config_parse(&config, ac, av, why, sizeof(why));
	int found;

	task.visible = config.nvidia_visible;
	if (!config_managed(&config))
		goto done;
	spank_get_item(sp, S_JOB_ID, &task.job);
	task.growth = config.memory_growth;
	task.list = list_of(sp);
	found = read_slots(sp, &task.step);
	task.bound = found < 0 || (found > 0 && has_slot(&task.step));
	if (found < 0)
		snprintf(task.error, sizeof(task.error), "couldn't read the slots in %s; ask an administrator to check gres.conf",
			 task.list);
	else if (config_rc < 0 && task.bound)
		snprintf(task.error, sizeof(task.error), "couldn't read the plugstack.conf line: %s; ask an administrator to correct it",
			 why);
	else if (task.bound)
		read_lease(sp, &config);
	else
		read_lease_devices(&config);
	if (!task.error[0])
		confine(&config);

done:
	return 0;
}

/*
 * Finds the step's slots that the task's devices cgroup allows it to access: access() fails with EPERM for the others.
 * Slurm's list of the task's slots cannot be used here, because with relative indices, it consists of the step's first
 * slots for every bound task (gres_common.c, common_gres_set_env).
 */
static bool allowed_slots(struct slots *own)
{
	own->n = 0;
	for (unsigned i = 0; i < task.step.n; i++) {
		char path[64];

		snprintf(path, sizeof(path), SLOT_DEVICE, task.step.slot[i]);
		if (access(path, R_OK) == 0)
			own->slot[own->n++] = task.step.slot[i];
		else if (errno != EPERM) {
			snprintf(task.error, sizeof(task.error),
				 "couldn't check this task's access to %s: %s; "
				 "ask an administrator to make the file readable (chmod 0444)",
				 path, strerror(errno));
			return false;
		}
	}
	return true;
}

/*
 * Finds the slots that --gpu-bind=map_gpu or mask_gpu assigns to the task. Without ConstrainDevices, Slurm compares the
 * numbers in the list with the node's slots, so a job whose slots do not begin with 0 would get some slices twice and
 * others not at all (_get_usable_gres_map_or_mask in gres.c). The plugin counts the step's slots instead, as Slurm does
 * with ConstrainDevices. Returns false if the task is bound in another way.
 */
static bool mapped_slots(spank_t sp, struct slots *own)
{
	static char binding[BINDING_MAX];
	int id = -1;

	/* slurmstepd sets the variable for each task of a step with a binding. */
	return spank_getenv(sp, "SLURMD_TRES_BIND", binding, sizeof(binding)) == ESPANK_SUCCESS &&
	       spank_get_item(sp, S_TASK_ID, &id) == ESPANK_SUCCESS && id >= 0 && bind_slots(own, binding, id, &task.step);
}

/*
 * Finds the task's slots. By default, a task has all of its step's slots, but Slurm can bind it to some of them
 * (--gpu-bind, --gpus-per-task).
 */
static bool own_slots(spank_t sp, struct slots *own)
{
	int found = read_slots(sp, own);
	bool rv = true;

	if (found < 0) {
		snprintf(task.error, sizeof(task.error), "couldn't read the slots in %s; ask an administrator to check gres.conf",
			 task.list);
		rv = false;
	} else if (found == 0 || slots_equal(own, &task.step)) {
		*own = task.step;
	} else if (task.lease.relative) {
		rv = allowed_slots(own);
	} else if (mapped_slots(sp, own)) {
		rv = true;
	} else if (!slots_within(own, &task.step)) {
		fail("couldn't find this task's slices: Slurm bound the task to GPUs that its step does not have; "
		     "omit --gres-flags=allow-task-sharing");
		rv = false;
	}
	return rv;
}

/*
 * Unsets other vendors' device variables. Without Flags=nvidia_gpu_env in gres.conf, Slurm sets them to the numbers in
 * CUDA_VISIBLE_DEVICES, which are slots and mean nothing to any runtime. Besides, some programs do not start if both
 * ROCR_VISIBLE_DEVICES and CUDA_VISIBLE_DEVICES are set. A variable with a different value is kept, because the user
 * must have set it.
 */
static void unset_numbers(spank_t sp)
{
	static const char *const others[] = { "GPU_DEVICE_ORDINAL", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK" };
	char numbers[LIST_MAX], value[LIST_MAX];

	if (spank_getenv(sp, "CUDA_VISIBLE_DEVICES", numbers, sizeof(numbers)) != ESPANK_SUCCESS)
		return;
	for (unsigned i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		if (spank_getenv(sp, others[i], value, sizeof(value)) == ESPANK_SUCCESS && strcmp(value, numbers) == 0)
			spank_unsetenv(sp, others[i]);
	}
}

/*
 * Corrects SLURM_GPUS_ON_NODE if the step has slots without a slice. Slurm allocates all of the node's slots to a job
 * with --exclusive, including those without a slice.
 */
static void correct_count(spank_t sp, unsigned slices)
{
	char count[16];

	if (slices == 0) {
		spank_unsetenv(sp, "SLURM_GPUS_ON_NODE");
	} else if (slices < task.step.n) {
		snprintf(count, sizeof(count), "%u", slices);
		spank_setenv(sp, "SLURM_GPUS_ON_NODE", count, 1);
	}
}

/*
 * Sets NVIDIA_VISIBLE_DEVICES, which tells enroot's hook and nvidia-container-cli the devices for a container, to the
 * step's slices. These are not only the task's, because pyxis starts a single container for the step's tasks on a node,
 * in the task_init of the first of them. Without slices, removes a list that was inherited from another job or step. A
 * user's "void" or "none" is kept, because it asks for a container without GPUs.
 */
static void set_visible(spank_t sp, const char *uuids)
{
	static const char name[] = "NVIDIA_VISIBLE_DEVICES";
	char value[5] = ""; /* spank_getenv cuts off the rest */

	spank_getenv(sp, name, value, sizeof(value));
	if (uuids[0] == '\0') {
		if (strcmp(value, "MIG-") == 0 || strcmp(value, "GPU-") == 0)
			spank_unsetenv(sp, name);
	} else if (strcmp(value, "void") != 0 && strcmp(value, "none") != 0 &&
		   spank_setenv(sp, name, uuids, 1) != ESPANK_SUCCESS) {
		slurm_error("caelum: task: job %u: couldn't set %s; set it to $CUDA_VISIBLE_DEVICES in the job", task.job, name);
	}
}

static bool translate(const struct slots *slots, char *uuids, size_t size, int *slices)
{
	uint32_t unknown = 0;

	*slices = slots_translate(slots, &task.lease, uuids, size, &unknown);
	if (*slices < 0)
		snprintf(task.error, sizeof(task.error),
			 "couldn't find slot %u in the lease file; "
			 "submit the job again, and ask an administrator to run 'caelum status' on this node",
			 unknown);
	return *slices >= 0;
}

int caelum_task(spank_t sp, int ac, char **av)
{
	static char uuids[LEASE_SLOTS_MAX * LEASE_UUID_MAX];
	struct slots own;
	int of_step, of_task;
	int rv = -1;

	(void)ac, (void)av;
	if (!task.bound && !task.error[0]) {
		if (task.visible)
			set_visible(sp, "");
		rv = 0;
		goto done;
	}
	if (task.error[0] || !own_slots(sp, &own) || !translate(&task.step, uuids, sizeof(uuids), &of_step))
		goto done;
	if (task.visible)
		set_visible(sp, uuids);
	if (!translate(&own, uuids, sizeof(uuids), &of_task))
		goto done;
	unset_numbers(sp);
	correct_count(sp, of_step);
	/* Slurm sets NoDevFiles for a step without a GPU. CUDA then finds no device. */
	if (spank_setenv(sp, "CUDA_VISIBLE_DEVICES", of_task ? uuids : "NoDevFiles", 1) != ESPANK_SUCCESS) {
		fail("couldn't set CUDA_VISIBLE_DEVICES; submit the job again");
		goto done;
	}
	if (of_task && task.growth)
		growth_set(sp, task.job);
	rv = 0;

done:
	if (rv < 0) {
		char node[256];

		if (spank_getenv(sp, "SLURMD_NODENAME", node, sizeof(node)) != ESPANK_SUCCESS)
			snprintf(node, sizeof(node), "this node");
		slurm_error("caelum: task: job %u on %s: %s", task.job, node, task.error);
	}
	return rv;
}
