#ifndef CAELUM_JOB_H
#define CAELUM_JOB_H

#include <stddef.h>
#include <stdint.h>

/*
 * What passes from the C plugin to the Go object. Raise the number with every change of this header: the two files are
 * installed one after the other, and a node in between must say so and not misread.
 */
#define CAELUM_JOB_ABI 1

struct caelum_job {
	uint32_t id;
	uint32_t uid;
	uint32_t gid;
	uint32_t wait; /* seconds until the deadline */
	/* Environment of the prolog; "" where it is not set. */
	char *restart;   /* SLURM_JOB_RESTART_COUNT */
	char *slots;     /* SLURM_JOB_GPUS */
	char *partition; /* SLURM_JOB_PARTITION */
	char *node;      /* SLURMD_NODENAME */
	char *mig;       /* the value of --mig */
	char *run_dir;
};

/*
 * caelum_job_prolog and caelum_job_epilog: 0, or -1 with what went wrong and what to do next in message, in one line
 * and without the "caelum: phase:" before it.
 */
typedef int caelum_job_f(struct caelum_job *job, char *message, size_t size);

#endif
