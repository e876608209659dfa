/*
 * This header declares the functions for the files under /proc that describe the driver's capabilities. The emulated
 * files are regular files, which a test can bind-mount over those in /proc. Their formats are defined by nv-caps.c and
 * nv-procfs.c in NVIDIA's open kernel modules 595.45.04.
 *
 *   devices                                                  the major number of nvidia-caps, as in /proc/devices
 *   driver/nvidia/params                                     ModifyDeviceFiles; RegistryDwords
 *   driver/nvidia-caps/mig-minors                            the minor number of every possible capability
 *   driver/nvidia-nvlink/capabilities/fabric-mgmt           on a system with NVSwitches
 *   driver/nvidia/capabilities/mig/{config,monitor}          the capabilities that belong to no instance
 *   driver/nvidia/capabilities/gpu<N>/mig/gi<M>/access       and .../ci<K>/access: for the existing instances
 *
 * The line "DeviceFileModify: 0", which root writes to an access file, forbids nvidia-modprobe to create or change the
 * capability's device file. The new capability of an instance that is created again has the driver's default.
 */
#ifndef EMU_PROC_H
#define EMU_PROC_H

#include "state.h"

/* proc_setup creates the files of a machine without instances. It returns 0, or -1 with a message in error. */
int proc_setup(const struct state *st, char *error, size_t size);

/*
 * proc_add_cap creates the access file of a GPU instance (ci -1) or a compute instance, and proc_remove_cap removes
 * the access file for a minor number. Both do nothing if the state has no /proc files. Both return 0, or -1 with errno
 * set.
 */
int proc_add_cap(const struct state *st, unsigned gpu, unsigned gi, int ci);
int proc_remove_cap(const struct state *st, unsigned minor);

/*
 * proc_modifies reports whether a capability's access file exists and tells nvidia-modprobe to manage the device file.
 * The line that was written last is the first one of its kind in the file.
 */
bool proc_modifies(const struct state *st, unsigned minor);

/*
 * proc_sweep_caps removes the access files that belong to no instance, which a process leaves behind if it is killed
 * around the commit of a created or destroyed instance. It must be called within a transaction that may write.
 */
void proc_sweep_caps(const struct state *st);

#endif
