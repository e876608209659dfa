/*
 * The devices that need a lease: the capability devices of every slice that is possible on the node. If Slurm confines
 * devices (ConstrainDevices=yes), the step's cgroup denies each job the devices of other jobs. Otherwise the owner and
 * mode of the device files separate users, but not two jobs of the same user.
 */
#ifndef CAELUM_DEVICES_H
#define CAELUM_DEVICES_H

#include "text.h"

#define DEVICES_MAX 1024 /* 16 GPUs of 15 GPU instances with a compute instance each have 480 devices */

struct devices {
	char cgroup[128]; /* Slurm's CgroupMountpoint */
	unsigned n;
	struct device device[DEVICES_MAX];
};

/*
 * Parses the agent's device list (docs/internals.md), which needs no terminating NUL. Returns 0, or -1 with the reason
 * in why.
 */
int devices_parse(struct devices *devices, const char *text, size_t length, char *why, size_t size);

/*
 * Reads (text_read) and parses the list. Returns 0, or -1 with the reason in why; errno is ENOENT if there is no file.
 */
int devices_read(struct devices *devices, const char *path, char *why, size_t size);

#endif
