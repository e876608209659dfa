/*
 * This header declares the memory limits of cgroups, which the driver enforces from release 615 on GPUs without MIG.
 *
 * Sources: "MPS v3 Memory Partitioning" in NVIDIA's MPS documentation, and memacct.c in the open kernel modules
 * 615.71.09. A process is charged to the nearest cgroup, from its own upwards, on which the controller of the backend is
 * enabled. The two backends differ:
 *
 *            a limit of a cgroup without the controller   limits that apply         when the cgroup is removed
 *   misc     is set, and never applies                    the nearest one upwards   a newer cgroup inherits the limit
 *   dmem     cannot be set (NOT_FOUND)                    all upwards               the limit is gone
 *
 * With misc, the driver keeps the limits in a map whose keys are the addresses of the kernel's objects. It never removes
 * a key, and the kernel uses the address again for a later cgroup. In the emulator, a cgroup for which nothing is known
 * therefore takes over the entry of a removed older cgroup.
 *
 * Unknown is whether misc counts the memory that a process allocated before its cgroup had a limit. In the emulator, it
 * does.
 */
#ifndef EMU_CGROUP_H
#define EMU_CGROUP_H

#include "state.h"

/* Many kernels have neither controller, so another one takes its place: the kernel has the same rules for all of them. */
#define EMU_CONTROLLER "hugetlb"

#define EMU_LIMITS_RELEASE 615 /* the first driver release with memory limits */

/* driver_release returns the driver's release, for example 595. */
unsigned driver_release(const struct state *st);

/*
 * cgroup_set sets the limit of a cgroup's memory on a GPU, in bytes. cgroup is the path of the cgroup's directory.
 * UINT64_MAX removes the limit. cgroup_get returns the limit and the memory in use.
 */
nvmlReturn_t cgroup_set(struct state *st, unsigned gpu, const char *cgroup, uint64_t bytes);
nvmlReturn_t cgroup_get(const struct state *st, unsigned gpu, const char *cgroup, uint64_t *bytes, uint64_t *used);

/*
 * cgroup_join returns the number of the cgroup, from 1, that is charged for the memory of the calling process, or 0 if
 * there is none.
 */
unsigned cgroup_join(struct state *st);

/* cgroup_room returns the bytes that the limits let a cgroup's processes allocate. number is a result of cgroup_join. */
uint64_t cgroup_room(const struct state *st, unsigned gpu, unsigned number);

/*
 * cgroup_show replaces a GPU's memory and the memory in use, in bytes, by those that the driver shows to the calling
 * process.
 */
void cgroup_show(const struct state *st, unsigned gpu, uint64_t *total, uint64_t *used);

#endif
