#ifndef CAELUM_JOB_H
#define CAELUM_JOB_H

#include <stddef.h>
#include <stdint.h>

/*
 * The version of the interface between the C plugin and the Go object. Increment CAELUM_JOB_ABI whenever this header
 * changes. Because the package manager installs the plugin and the Go object one after the other, a node may have
 * different versions of them, and must then report an error.
 */
#define CAELUM_JOB_ABI 2

struct caelum_job {
	uint32_t id;
	uint32_t uid;
	uint32_t gid;
	uint32_t wait; /* time limit in seconds */
	/* The names in capitals are variables in the prolog's environment. A member without a value is "". */
	char *restart;   /* SLURM_JOB_RESTART_COUNT */
	char *slots;     /* SLURM_JOB_GPUS */
	char *partition; /* SLURM_JOB_PARTITION */
	char *sluid;     /* SLURM_JOB_SLUID */
	char *node;      /* SLURMD_NODENAME */
	char *mig;       /* the value of --mig */
	char *run_dir;   /* run_dir= in plugstack.conf */
};

/*
 * The type of caelum_job_prolog and caelum_job_epilog. Both return 0, or -1 with the error and its remedy in message.
 * The message is a single line without the prefix "caelum: phase:".
 */
typedef int caelum_job_f(struct caelum_job *job, char *message, size_t size);

#endif
