/*
 * Runs a job's prolog and epilog on the node. Only this file opens the Go object. Because Slurm forks and execs a
 * separate process for each prolog and epilog ("slurmstepd spank prolog"), the Go runtime's threads and signal handlers
 * affect no other code, and end with the process.
 */
#include "config.h"
#include "drain.h"
#include "option.h"
#include "plugin.h"
#include "trusted.h"
#include "job/job.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/*
 * How long, in seconds, an epilog waits for the agent. The time is short, because no job starts on a COMPLETING node.
 */
#define EPILOG_WAIT 5

static char *env(const char *name)
{
	char *value = getenv(name);

	return value ? value : "";
}

static const char *node(void)
{
	char *name = env("SLURMD_NODENAME");

	return name[0] ? name : "this node";
}

/*
 * Writes the path of the Go object, which is the value of job_object= or a file in the plugin's directory. Returns 0,
 * or -1 if the path is unknown or too long.
 */
static int find_object(const struct config *config, char *path, size_t size)
{
	Dl_info info;
	const char *slash;

	if (config->job_object)
		return (size_t)snprintf(path, size, "%s", config->job_object) < size ? 0 : -1;
	if (!dladdr((void *)find_object, &info) || !(slash = strrchr(info.dli_fname, '/')))
		return -1;
	if ((size_t)snprintf(path, size, "%.*s/libcaelum_spank.so", (int)(slash - info.dli_fname), info.dli_fname) >= size)
		return -1;
	return 0;
}

/*
 * Opens the Go object and returns the function with the given name, or NULL with the reason in message. The Go object
 * remains open, because a process cannot unload a Go runtime.
 */
static caelum_job_f *find_function(const struct config *config, const char *function, char *message, size_t size)
{
	char path[1024];
	char *trusted = NULL;
	void *object = NULL;
	const int *abi;
	caelum_job_f *f = NULL;

	if (spank_context() != S_CTX_JOB_SCRIPT) {
		snprintf(message, size, "couldn't open the Go object: this is not Slurm's process for prologs; report this error");
		goto done;
	}
	if (find_object(config, path, sizeof(path)) < 0) {
		snprintf(message, size, "couldn't find libcaelum_spank.so: the path of the plugin is unknown or too long; "
					"set job_object= in plugstack.conf");
		goto done;
	}
	/*
	 * An object in the plugin's directory needs no check, because slurmd, which also runs as root, has already loaded
	 * the plugin from there.
	 */
	if (config->job_object && !(trusted = trusted_path(path, message, size)))
		goto done;
	if (!(object = dlopen(trusted ? trusted : path, RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE))) {
		snprintf(message, size, "couldn't open %s: %s; install the file from the same Caelum release", path, dlerror());
		goto done;
	}
	abi = dlsym(object, "caelum_job_abi");
	if (!abi || *abi != CAELUM_JOB_ABI) {
		snprintf(message, size,
			 "couldn't use %s: its interface version is %d, but the plugin's is %d; "
			 "install both files of one Caelum release",
			 path, abi ? *abi : 0, CAELUM_JOB_ABI);
		goto done;
	}
	if (!(f = (caelum_job_f *)dlsym(object, function)))
		snprintf(message, size, "couldn't use %s: %s; install both files of one Caelum release", path, dlerror());

done:
	free(trusted);
	return f;
}

/* Fills job with the data that Slurm provides. On error, returns false with the reason in message. */
static bool describe(spank_t sp, const struct config *config, struct caelum_job *job, char *message, size_t size)
{
	uid_t uid;
	gid_t gid;
	spank_err_t rc;

	*job = (struct caelum_job){
		.wait = config->wait,
		.restart = env("SLURM_JOB_RESTART_COUNT"),
		.slots = env("SLURM_JOB_GPUS"),
		.partition = env("SLURM_JOB_PARTITION"),
		.sluid = env("SLURM_JOB_SLUID"),
		.node = (char *)node(),
		.mig = "",
		.run_dir = (char *)config->run_dir,
	};
	if ((rc = spank_get_item(sp, S_JOB_ID, &job->id)) != ESPANK_SUCCESS ||
	    (rc = spank_get_item(sp, S_JOB_UID, &uid)) != ESPANK_SUCCESS ||
	    (rc = spank_get_item(sp, S_JOB_GID, &gid)) != ESPANK_SUCCESS) {
		snprintf(message, size, "couldn't get the job's id and owner from Slurm: %s; report this error", spank_strerror(rc));
		return false;
	}
	job->uid = uid;
	job->gid = gid;
	return true;
}

/*
 * Returns the value of an option, or "" if it is absent or invalid. Because users can bypass the check at submission by
 * setting the environment, an invalid value is only logged and ignored: it must not make the prolog fail.
 */
static char *argument(spank_t sp, struct spank_option *option, bool (*valid)(const char *), uint32_t job)
{
	char *value = NULL;

	if (spank_option_getopt(sp, option, &value) != ESPANK_SUCCESS || !value)
		return "";
	if (valid(value))
		return value;
	slurm_info("caelum: prolog: job %u on %s: --%s ignored: its value is invalid", job, node(), option->name);
	return "";
}

/* Drains the node. The message becomes the reason, which `sinfo -R` shows to the administrator. */
static void drain_node(const char *message)
{
	char reason[1100];

	snprintf(reason, sizeof(reason), "caelum: job %s: %s", env("SLURM_JOB_ID"), message);
	drain(env("SLURMD_NODENAME"), reason);
}

int caelum_prolog(spank_t sp, int ac, char **av)
{
	struct config config;
	struct caelum_job job;
	caelum_job_f *prolog;
	char message[1024] = "";
	char why[256];
	int config_rc;
	int rv = -1;

	if (!getenv("SLURM_JOB_GPUS")) {
		rv = 0;
		goto done;
	}
	config_rc = config_parse(&config, ac, av, why, sizeof(why));
	if (!config_managed(&config)) {
		rv = 0;
		goto done;
	}
	if (config_rc < 0) {
		snprintf(message, sizeof(message),
			 "couldn't read the plugstack.conf line: %s; "
			 "correct the line, then run scontrol update nodename=%s state=resume",
			 why, node());
		goto done;
	}
	if (!describe(sp, &config, &job, message, sizeof(message)))
		goto done;
	job.mig = argument(sp, &option_mig, option_valid, job.id);
	/* job_submit.lua has already evaluated --mig-mem and --mig-grow. These calls only log invalid values. */
	argument(sp, &option_mig_mem, option_valid_size, job.id);
	argument(sp, &option_mig_grow, option_valid_growth, job.id);
	if (!(prolog = find_function(&config, "caelum_job_prolog", message, sizeof(message))))
		goto done;
	rv = prolog(&job, message, sizeof(message));

done:
	if (rv < 0) {
		slurm_error("caelum: prolog: job %s on %s: %s", env("SLURM_JOB_ID"), node(), message);
		drain_node(message);
	}
	return rv;
}

static bool has_lease(const struct config *config, uint32_t job)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/jobs/%u", config->run_dir, job);
	return access(path, F_OK) == 0;
}

/*
 * Never fails, because a -1 would drain the node. If the request to the agent fails, the agent will later release the
 * ended job's lease.
 */
int caelum_epilog(spank_t sp, int ac, char **av)
{
	struct config config;
	struct caelum_job job;
	caelum_job_f *epilog;
	char message[1024] = "";
	int rv = -1;

	/*
	 * An invalid argument in plugstack.conf must not prevent the job's slices from being released, so the epilog uses
	 * the valid arguments.
	 */
	config_parse(&config, ac, av, message, sizeof(message));
	if (!config_managed(&config)) {
		rv = 0;
		goto done;
	}
	if (!describe(sp, &config, &job, message, sizeof(message)))
		goto done;
	if (!getenv("SLURM_JOB_GPUS") && !has_lease(&config, job.id)) {
		rv = 0;
		goto done;
	}
	if (job.wait > EPILOG_WAIT)
		job.wait = EPILOG_WAIT;
	if (!(epilog = find_function(&config, "caelum_job_epilog", message, sizeof(message))))
		goto done;
	rv = epilog(&job, message, sizeof(message));

done:
	if (rv < 0)
		slurm_error("caelum: epilog: job %s on %s: %s; the agent releases the slices of finished jobs by itself",
			    env("SLURM_JOB_ID"), node(), message);
	return 0;
}
