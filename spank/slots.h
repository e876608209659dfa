#ifndef CAELUM_SLOTS_H
#define CAELUM_SLOTS_H

#include "lease.h"

/* Slots of gres/gpu in the order in which Slurm lists them. */
struct slots {
	unsigned n;
	uint32_t slot[LEASE_SLOTS_MAX];
};

/* Reads "0,3,4" as in SLURM_STEP_GPUS. */
bool slots_parse(struct slots *slots, const char *text);

bool slots_equal(const struct slots *a, const struct slots *b);

/* Whether every slot of part is in whole. */
bool slots_within(const struct slots *part, const struct slots *whole);

/*
 * Writes the UUIDs of the slices behind slots, comma separated; a slot without a slice is left out. Returns how many
 * stand there, or -1 for a slot that the lease does not name (*unknown) or a list longer than size.
 */
int slots_translate(const struct slots *slots, const struct lease *lease, char *out, size_t size, uint32_t *unknown);

#endif
