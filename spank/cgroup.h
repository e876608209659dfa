#ifndef CAELUM_CGROUP_H
#define CAELUM_CGROUP_H

#include "devices.h"
#include "lease.h"

#define CGROUP_PATH_MAX 512

/*
 * Finds the cgroup of the current step in the text of /proc/self/cgroup, in the devices hierarchy of version 1 or in
 * version 2. Writes the path of the cgroup, and returns the version. Returns 0 if Slurm has created no cgroup for the
 * step.
 */
int cgroup_of_step(const char *text, size_t length, const char *mountpoint, char *path, size_t size);

/* Return values of cgroup_refuse. */
#define CGROUP_UNSUPPORTED 1 /* the kernel does not support the BPF program */
#define CGROUP_NONE 2        /* Slurm has created no cgroup for the step */

/*
 * Denies all present and future tasks of the step access to the given devices, except to the devices in own. own is the
 * lease of the job, which may contain no devices. Returns 0, CGROUP_UNSUPPORTED, CGROUP_NONE, or -1 for an error. If
 * the result is not 0, why contains the reason.
 */
int cgroup_refuse(const struct devices *devices, const struct lease *own, char *why, size_t size);

/* Does the work of cgroup_refuse in version 2 (bpf.c). step is the path of the step's cgroup. */
int bpf_refuse(const char *step, const struct devices *devices, const struct lease *own, char *why, size_t size);

#endif
