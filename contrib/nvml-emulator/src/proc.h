/* The files of the driver under /proc for its capabilities. They are regular files in a folder that a test mounts
 * there. Their formats are those of nv-caps.c and nv-procfs.c in NVIDIA's open kernel modules 595.45.04.
 *
 *   devices                                                  the major of nvidia-caps, as in /proc/devices
 *   driver/nvidia/params                                     ModifyDeviceFiles
 *   driver/nvidia-caps/mig-minors                            the minor of every possible capability
 *   driver/nvidia/capabilities/gpu<N>/mig/gi<M>/access       and .../ci<K>/access: for the existing instances
 *
 * The real driver interprets "DeviceFileModify: 0" that is written to an access file. Here the file only stores the
 * text. */
#ifndef EMU_PROC_H
#define EMU_PROC_H

#include "state.h"

/* proc_setup makes the files of a machine without instances. It returns 0, or -1 with a message in error. */
int proc_setup(const struct state *st, char *error, size_t size);

/* proc_add_cap makes, and proc_remove_cap removes, the access file of a GPU instance (ci -1) or a compute instance.
 * Both do nothing in a state without /proc files. They return 0, or -1 with errno. */
int proc_add_cap(const struct state *st, unsigned gpu, unsigned gi, int ci);
int proc_remove_cap(const struct state *st, unsigned minor);

#endif
