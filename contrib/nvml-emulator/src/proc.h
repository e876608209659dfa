/* What the driver shows under /proc of its capabilities: regular files under a folder that a test mounts there. The
 * forms are those of nv-caps.c and nv-procfs.c of NVIDIA's open kernel modules, 595.45.04.
 *
 *   devices                                                  the major of nvidia-caps, as in /proc/devices
 *   driver/nvidia/params                                     ModifyDeviceFiles
 *   driver/nvidia-caps/mig-minors                            the minor of every capability that there can be
 *   driver/nvidia/capabilities/gpu<N>/mig/gi<M>/access       and .../ci<K>/access: of the instances that there are
 *
 * The kernel's access file takes "DeviceFileModify: 0" from a writer; a regular file keeps what is written. */
#ifndef EMU_PROC_H
#define EMU_PROC_H

#include "state.h"

/* proc_setup makes the files of a machine without instances. 0, or -1 with a message in error. */
int proc_setup(const struct state *st, char *error, size_t size);

/* The access file of a GPU instance (ci -1) or compute instance comes and goes with it. Both do nothing in a state
 * without /proc. 0, or -1 with errno. */
int proc_add_cap(const struct state *st, unsigned gpu, unsigned gi, int ci);
int proc_remove_cap(const struct state *st, unsigned minor);

#endif
