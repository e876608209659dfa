#ifndef CAELUM_LEASE_H
#define CAELUM_LEASE_H

#include "text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LEASE_SLOTS_MAX 256  /* 16 GPUs of 7 slots are 112 */
#define LEASE_UUID_MAX 96    /* MIG-<uuid> is 40 bytes, MIG-GPU-<uuid>/<gi>/<ci> of old drivers up to 51 */
#define LEASE_ERROR_MAX 1024
#define LEASE_DEVICES_MAX (2 * LEASE_SLOTS_MAX) /* a GPU instance and its compute instance a slice */

struct lease_slot {
	uint32_t index;
	char uuid[LEASE_UUID_MAX]; /* empty: a slot with no slice behind it */
};

/* A job's hold on slices, as the agent wrote it. Either error or at least one slot. */
struct lease {
	uint32_t job;
	uint32_t restart;
	uint32_t uid;
	bool relative; /* Slurm numbers CUDA_VISIBLE_DEVICES within the step */
	unsigned slots;
	struct lease_slot slot[LEASE_SLOTS_MAX];
	unsigned devices;
	struct device device[LEASE_DEVICES_MAX]; /* the slices' capabilities, where devices.h has a use for them */
	char error[LEASE_ERROR_MAX];
};

/*
 * Parses the text of a lease file, which needs no terminating NUL. 0, or -1 with the reason in why for anything but
 * exactly the form of docs/internals.md. Allocates nothing.
 */
int lease_parse(struct lease *lease, const char *text, size_t length, char *why, size_t size);

/*
 * Reads (text_read) and parses a lease file. 0, or -1 with the reason in why, and errno ENOENT if there is none.
 */
int lease_read(struct lease *lease, const char *path, char *why, size_t size);

/* The slice behind a slot: its UUID, "" for a slot with none, NULL for a slot that the lease does not name. */
const char *lease_uuid(const struct lease *lease, uint32_t slot);

/* Is it one of the lease's devices? */
bool lease_has(const struct lease *lease, const struct device *device);

#endif
