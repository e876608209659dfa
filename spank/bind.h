#ifndef CAELUM_BIND_H
#define CAELUM_BIND_H

#include "slots.h"

/*
 * Finds the slots of a task in a step with --gpu-bind=map_gpu or mask_gpu. binding is Slurm's text of the binding, for
 * example "gpu:map_gpu:0,1" (22.05) or "gres/gpu:mask:0x1,0x2*3" (24.11), and task is the task's number on this node.
 * The numbers and bits in a list count the step's slots from 0. As in Slurm, a list that is shorter than the number of
 * tasks is repeated, and a task whose entry names no slot of the step gets the first one. Returns false if the binding
 * has another form.
 */
bool bind_slots(struct slots *own, const char *binding, unsigned task, const struct slots *step);

#endif
