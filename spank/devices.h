/*
 * The devices that need a lease: the capability devices of every slice that is possible on the node. With
 * ConstrainDevices=yes, the step's cgroup denies each job access to other jobs' devices. Otherwise, the device files'
 * owners and modes keep different users apart, but not two jobs of the same user.
 */
#ifndef CAELUM_DEVICES_H
#define CAELUM_DEVICES_H

#include "text.h"

#define DEVICES_MAX 1024 /* 16 GPUs have 480 devices: each has 15 GPU instances with one compute instance each \
# */

struct devices {
	char cgroup[128]; /* Slurm's CgroupMountpoint */
	unsigned n;
	struct device device[DEVICES_MAX];
};

/*
 * Parses the agent's device list (docs/internals/interfaces.md). The text need not end with NUL. Returns 0, or -1 with
 * the reason in why.
 */
int devices_parse(struct devices *devices, const char *text, size_t length, char *why, size_t size);

/*
 * Reads and parses the device list (text_read). Returns 0, or -1 with the reason in why. If the file does not exist,
 * errno is ENOENT.
 */
int devices_read(struct devices *devices, const char *path, char *why, size_t size);

#endif
