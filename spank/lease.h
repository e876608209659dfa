#ifndef CAELUM_LEASE_H
#define CAELUM_LEASE_H

#include "text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LEASE_SLOTS_MAX 256  /* slots on a node; 16 GPUs with 7 slots each need 112 */
#define LEASE_UUID_MAX 96    /* in bytes; MIG-<uuid> has 40 bytes, MIG-GPU-<uuid>/<gi>/<ci> and GPU-<uuid>/<serial>/<size> up to 51 */
#define LEASE_ERROR_MAX 1024 /* in bytes, including the terminating NUL */

#define LEASE_DEVICES_MAX (3 * LEASE_SLOTS_MAX) /* each slice has a GPU instance, a compute instance and a GPU */

struct lease_slot {
	uint32_t index;
	char uuid[LEASE_UUID_MAX]; /* empty if the slot has no slice */
};

/* The contents of a lease file, which are either an error or at least one slot. */
struct lease {
	uint32_t job;
	uint32_t restart;
	uint32_t uid;
	bool relative;   /* Slurm's numbers in CUDA_VISIBLE_DEVICES are relative to the step */
	uint64_t cgroup; /* the inode number of the job's cgroup, whose GPU memory is limited, or 0 */
	unsigned slots;
	struct lease_slot slot[LEASE_SLOTS_MAX];
	unsigned devices;
	struct device device[LEASE_DEVICES_MAX]; /* the capability devices of the slices, if Slurm confines devices */
	char error[LEASE_ERROR_MAX];
};

/*
 * Parses the contents of a lease file, which need not end with NUL. Returns 0, or -1 with the reason in why if they do
 * not have exactly the form described in docs/internals/interfaces.md. Allocates no memory.
 */
int lease_parse(struct lease *lease, const char *text, size_t length, char *why, size_t size);

/*
 * Reads and parses a lease file (text_read). Returns 0, or -1 with the reason in why. If the file does not exist, errno
 * is ENOENT.
 */
int lease_read(struct lease *lease, const char *path, char *why, size_t size);

/* Returns the UUID of a slot's slice, "" for a slot without one, or NULL if the slot is not part of the lease. */
const char *lease_uuid(const struct lease *lease, uint32_t slot);

/* Reports whether the device is part of the lease. */
bool lease_has(const struct lease *lease, const struct device *device);

#endif
