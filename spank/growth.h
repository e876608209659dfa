#ifndef CAELUM_GROWTH_H
#define CAELUM_GROWTH_H

#include <stdint.h>

#include <slurm/spank.h>

/*
 * Sets the variables with which JAX and TensorFlow allocate GPU memory as their program needs it. Leaves a framework
 * alone if the task's environment already configures the memory of the framework. Never fails: if Slurm cannot set a
 * variable, the task's stderr contains a message.
 */
void growth_set(spank_t sp, uint32_t job);

#endif
