#ifndef CAELUM_SLOTS_H
#define CAELUM_SLOTS_H

#include "lease.h"

/* A list of gres/gpu slots, in Slurm's order. */
struct slots {
	unsigned n;
	uint32_t slot[LEASE_SLOTS_MAX];
};

/* Parses a list in the format of SLURM_STEP_GPUS, for example "0,3,4". Returns false if it is invalid. */
bool slots_parse(struct slots *slots, const char *text);

bool slots_equal(const struct slots *a, const struct slots *b);

/* Reports whether whole contains every slot in part. */
bool slots_within(const struct slots *part, const struct slots *whole);

/*
 * Writes the UUIDs of the slots' devices to out, separated by commas; slots without a slice are omitted. The device of
 * a fraction is its GPU. Returns the number of slices. If a slot is not part of the lease, or its UUID does not fit into size, returns -1 with the slot in
 * *unknown.
 */
int slots_translate(const struct slots *slots, const struct lease *lease, char *out, size_t size, uint32_t *unknown);

#endif
