#ifndef CAELUM_REQUEST_H
#define CAELUM_REQUEST_H

#include <slurm/spank.h>

/* Adds the options test_only and quiet to those that job_submit.lua reads, for --test-only and --parsable. */
void request_mark(spank_t sp);

/* Warns the user of srun if the step requests slices, but no GPU. */
void request_warn_no_gpu(void);

/*
 * Removes the types of static MIG devices from a request of srun or salloc, and adds the option static to those that
 * job_submit.lua reads. Also removes the types from srun's request for a step.
 */
void request_remove_static(spank_t sp);

#endif
