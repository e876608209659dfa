#ifndef CAELUM_SLOTS_H
#define CAELUM_SLOTS_H

#include "lease.h"

/* Slots of gres/gpu, in Slurm's order. */
struct slots {
	unsigned n;
	uint32_t slot[LEASE_SLOTS_MAX];
};

/* Parses a list such as "0,3,4", the form of SLURM_STEP_GPUS. */
bool slots_parse(struct slots *slots, const char *text);

bool slots_equal(const struct slots *a, const struct slots *b);

/* Reports whether every slot of part is in whole. */
bool slots_within(const struct slots *part, const struct slots *whole);

/*
 * Writes the UUIDs of the slots' slices to out, separated by commas. A slot without a slice is left out. Returns the
 * number of slices. Returns -1, with the slot in *unknown, for a slot that is not in the lease or a list that exceeds
 * size.
 */
int slots_translate(const struct slots *slots, const struct lease *lease, char *out, size_t size, uint32_t *unknown);

#endif
