#ifndef CAELUM_CGROUP_H
#define CAELUM_CGROUP_H

#include "devices.h"
#include "lease.h"

#define CGROUP_PATH_MAX 512
#define CGROUP_MOUNTPOINT "/sys/fs/cgroup" /* Slurm's default CgroupMountpoint */

/*
 * Finds the current step's cgroup in the contents of /proc/self/cgroup, in v1's devices hierarchy or in v2. Writes its
 * path and returns the cgroup version, or 0 if Slurm has created no cgroup for the step.
 */
int cgroup_of_step(const char *text, size_t length, const char *mountpoint, char *path, size_t size);

/* Removes the last component of a path. Returns false if there is none. */
bool cgroup_parent(char *path);

/*
 * Checks that the cgroup of the step's job, the parent of the step's cgroup, has the given inode number: the driver
 * limits the GPU memory of a single cgroup, and a job in another one with the same name would have no limit. Returns 0,
 * or -1 with the reason in why, also if the step has no v2 cgroup.
 */
int cgroup_check_job(const char *mountpoint, uint64_t inode, char *why, size_t size);

/* Return values of cgroup_refuse. */
#define CGROUP_UNSUPPORTED 1 /* the kernel does not support the BPF program */
#define CGROUP_NONE 2        /* Slurm has created no cgroup for the step */

/*
 * Denies all present and future tasks of the step access to the given devices, except those in own. own is the job's
 * lease, which may contain no devices. Returns 0, CGROUP_UNSUPPORTED, CGROUP_NONE, or -1 for an error. Unless the
 * result is 0, the reason is in why.
 */
int cgroup_refuse(const struct devices *devices, const struct lease *own, char *why, size_t size);

/* Implements cgroup_refuse for version 2 (bpf.c). step is the path of the step's cgroup. */
int bpf_refuse(const char *step, const struct devices *devices, const struct lease *own, char *why, size_t size);

#endif
