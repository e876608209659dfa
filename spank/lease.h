#ifndef CAELUM_LEASE_H
#define CAELUM_LEASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LEASE_SLOTS_MAX 256  /* 16 GPUs of 7 slots are 112 */
#define LEASE_UUID_MAX 96    /* MIG-<uuid> is 40 bytes, MIG-GPU-<uuid>/<gi>/<ci> of old drivers up to 51 */
#define LEASE_ERROR_MAX 1024
#define LEASE_FILE_MAX 32768

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
	char error[LEASE_ERROR_MAX];
};

/*
 * Parses the text of a lease file, which needs no terminating NUL. 0, or -1 with the reason in why for anything but
 * exactly the form of docs/internals.md. Allocates nothing.
 */
int lease_parse(struct lease *lease, const char *text, size_t length, char *why, size_t size);

/*
 * Reads and parses a lease file: a regular file, no link, owned by root, not writable by others, at most
 * LEASE_FILE_MAX bytes. 0, or -1 with the reason in why. Not reentrant: the text goes through a static buffer,
 * because a task between fork and exec should not allocate.
 */
int lease_read(struct lease *lease, const char *path, char *why, size_t size);

/* The slice behind a slot: its UUID, "" for a slot with none, NULL for a slot that the lease does not name. */
const char *lease_uuid(const struct lease *lease, uint32_t slot);

#endif
