#ifndef CAELUM_CGROUP_H
#define CAELUM_CGROUP_H

#include "devices.h"
#include "lease.h"

#define CGROUP_PATH_MAX 512

/*
 * Finds, in the text of /proc/self/cgroup, the cgroup of the step that this process belongs to and that can refuse devices: of
 * version 1, with a hierarchy for devices, or of version 2. The version, or 0 if Slurm has made none.
 */
int cgroup_of_step(const char *text, size_t length, const char *mountpoint, char *path, size_t size);

/* Results of cgroup_refuse. */
#define CGROUP_UNSUPPORTED 1 /* the kernel has no BPF programs that could do it */
#define CGROUP_NONE 2        /* Slurm has made no cgroup for the step */

/*
 * Makes the step's cgroup refuse the devices but those of the lease, which may have none (devices = 0), for every task that
 * it has or will have. Returns 0, CGROUP_UNSUPPORTED, CGROUP_NONE or -1 for an error; the reason is in why unless 0.
 */
int cgroup_refuse(const struct devices *devices, const struct lease *own, char *why, size_t size);

/* The same in version 2 (bpf.c); step is the step's cgroup. */
int bpf_refuse(const char *step, const struct devices *devices, const struct lease *own, char *why, size_t size);

#endif
