#ifndef CAELUM_GROWTH_H
#define CAELUM_GROWTH_H

#include <stdint.h>

#include <slurm/spank.h>

/*
 * Sets the variables that make JAX and TensorFlow allocate GPU memory on demand. A framework whose memory is already
 * configured in the task's environment is left alone. growth_set never fails: if Slurm cannot set a variable, it writes
 * a message to the task's stderr.
 */
void growth_set(spank_t sp, uint32_t job);

#endif
