/*
 * The devices that need a lease: the capabilities of every slice that there can be on the node. No job may open those of
 * another, where Slurm has a devices cgroup to refuse them; elsewhere the files' owner and mode keep users apart, and
 * nothing keeps apart two jobs of one user.
 */
#ifndef CAELUM_DEVICES_H
#define CAELUM_DEVICES_H

#include "text.h"

#define DEVICES_MAX 1024 /* 16 GPUs of 15 GPU instances with a compute instance each are 480 */

struct devices {
	char cgroup[128]; /* Slurm's CgroupMountpoint */
	unsigned n;
	struct device device[DEVICES_MAX];
};

/* Parses the agent's list (docs/internals.md), which needs no terminating NUL. 0, or -1 with the reason in why. */
int devices_parse(struct devices *devices, const char *text, size_t length, char *why, size_t size);

/* Reads (text_read) and parses it. 0, or -1 with the reason in why, and errno ENOENT if there is none. */
int devices_read(struct devices *devices, const char *path, char *why, size_t size);

#endif
