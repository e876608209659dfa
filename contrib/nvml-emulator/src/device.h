/*
 * The emulated device files are character devices without a driver. If a process may open a file, open() fails with
 * ENXIO; otherwise, it fails with EACCES or EPERM. Permission tests need only this difference.
 */
#ifndef EMU_DEVICE_H
#define EMU_DEVICE_H

#include "state.h"

#define EMU_MAJOR 60 /* reserved for local and experimental use (devices.txt of the kernel) */

#define EMU_CAP_FABRIC 0  /* minor number of the capability fabric-mgmt */
#define EMU_CAP_CONFIG 1  /* minor number of the capability mig/config */
#define EMU_CAP_MONITOR 2 /* minor number of the capability mig/monitor */

/* EMU_CAP_MODE is the mode that nvidia-modprobe gives to a capability's device file. */
#define EMU_CAP_MODE(minor) ((minor) < EMU_CAP_MONITOR ? 0400 : 0444)

/*
 * device_setup removes the files of an earlier init, and creates nvidia<N>, nvidiactl and, unless keep_device_files
 * is set, nvidia-caps/nvidia-cap{1,2} and, with NVSwitches, nvidia-cap0. It returns 0, or -1 with a message in error.
 * It fails if the directory contains a real driver's device files.
 */
int device_setup(const struct state *st, char *error, size_t size);

/*
 * device_add_cap creates the capability file of a GPU instance (ci -1) or a compute instance with mode 0444, or gives an
 * existing file this mode, as nvidia-modprobe does when a client needs the file. It does nothing if the state has no
 * device files, or if nvidia-modprobe must not create them (keep_device_files), and returns 0, or -1 with errno set. As
 * on a real node, nothing removes the file when the instance is destroyed.
 */
int device_add_cap(const struct state *st, unsigned gpu, unsigned gi, int ci);

/*
 * device_may_use reports whether the calling process may open the capability file of a GPU instance (ci -1) or a compute
 * instance, and device_may_use_system the same for the capability with the given minor number. Both return true if the
 * state has no device files. As the real library does, they first let nvidia-modprobe create the file or restore its
 * owner and mode, unless the access file forbids it. The emulated one is not setuid root, so it works only for root.
 */
bool device_may_use(const struct state *st, unsigned gpu, unsigned gi, int ci);
bool device_may_use_system(const struct state *st, unsigned minor);

/* device_cap_path writes the path of the capability file. */
void device_cap_path(const struct state *st, unsigned gpu, unsigned gi, int ci, char *path, size_t size);

/* device_gpu_path writes the path of the GPU's device file. */
void device_gpu_path(const struct state *st, unsigned gpu, char *path, size_t size);

/*
 * device_hold keeps a descriptor for the device file until the process ends. This makes the process visible in
 * /proc/<pid>/fd, like one that uses a real GPU. The descriptor is an O_PATH descriptor, because opening a device
 * without a driver fails. device_hold returns it, or -1 if the state has no device files or the process may not open
 * the file.
 */
int device_hold(const struct state *st, unsigned gpu);

/*
 * device_holders writes the processes that have a descriptor for the GPU's device file to pid, and returns their
 * number, at most max. Processes whose descriptors the caller may not read are omitted.
 */
unsigned device_holders(const struct state *st, unsigned gpu, uint32_t *pid, unsigned max);

/* device_may_open reports whether the calling process may open the device file. */
bool device_may_open(const char *path);

#endif
