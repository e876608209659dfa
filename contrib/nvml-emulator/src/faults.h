/* This header declares the faults that `nvml-emulator fault` injects into calls. */
#ifndef EMU_FAULTS_H
#define EMU_FAULTS_H

#include "state.h"

/*
 * fault_find returns the next fault for the call on the GPU, or NULL. gpu is -1 for a call that does not refer to a
 * GPU.
 */
struct fault *fault_find(struct state *st, int call, int gpu);

/*
 * fault_take counts the call as an occurrence of its fault, and commits immediately, because a fault that kills its
 * caller would otherwise not be counted and would recur. It copies a fault that occurs now to *now, and otherwise sets
 * now->used to 0. If a reset fails with GPU_IS_LOST, it also makes the GPU fall off the bus. It returns 0, or -1 with
 * t->error set.
 */
int fault_take(struct txn *t, int call, int gpu, struct fault *now);

#endif
