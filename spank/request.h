#ifndef CAELUM_REQUEST_H
#define CAELUM_REQUEST_H

#include <slurm/spank.h>

/* Adds the option test_only to those that job_submit.lua reads, if sbatch or srun runs with --test-only. */
void request_mark_test(spank_t sp);

/*
 * Removes the types of static MIG devices from a request of srun or salloc, and adds the option static to those that
 * job_submit.lua reads. Also removes the types from srun's request for a step.
 */
void request_remove_static(spank_t sp);

#endif
