#ifndef CAELUM_JOB_H
#define CAELUM_JOB_H

#include <stddef.h>
#include <stdint.h>

/*
 * The version of the interface between the C plugin and the Go object. Increment it with every change of this header,
 * because the two files are installed one after the other, and a node with two different versions must report an error.
 */
#define CAELUM_JOB_ABI 1

struct caelum_job {
	uint32_t id;
	uint32_t uid;
	uint32_t gid;
	uint32_t wait; /* the time limit in seconds */
	/* Values from the prolog's environment, unless noted otherwise; "" if not set. */
	char *restart;   /* SLURM_JOB_RESTART_COUNT */
	char *slots;     /* SLURM_JOB_GPUS */
	char *partition; /* SLURM_JOB_PARTITION */
	char *node;      /* SLURMD_NODENAME */
	char *mig;       /* the value of --mig */
	char *run_dir;   /* run_dir= in plugstack.conf */
};

/*
 * The type of caelum_job_prolog and caelum_job_epilog. They return 0, or -1 with an error and its remedy in message, in
 * one line without the prefix "caelum: phase:".
 */
typedef int caelum_job_f(struct caelum_job *job, char *message, size_t size);

#endif
