/*
 * The emulated device files are character devices without a driver. If a process may open a file, open() fails with
 * ENXIO. Otherwise, open() fails with EACCES or EPERM. Tests of permissions need only this difference.
 */
#ifndef EMU_DEVICE_H
#define EMU_DEVICE_H

#include "state.h"

#define EMU_MAJOR 60 /* reserved for local and experimental use (devices.txt of the kernel) */

/*
 * device_setup removes the files of an earlier init, and creates nvidia<N>, nvidiactl and nvidia-caps/nvidia-cap{1,2}.
 * device_setup returns 0, or -1 with a message in error. device_setup fails if the directory contains the device files
 * of a real driver.
 */
int device_setup(const struct state *st, char *error, size_t size);

/*
 * device_add_cap creates the capability file of a GPU instance (ci -1) or a compute instance with mode 0444, as the
 * real driver does. device_remove_cap removes the capability file with the minor number. Both functions do nothing if
 * the state has no device files, or if the driver must not manage device files (keep_device_files). Both functions
 * return 0, or -1 with errno.
 */
int device_add_cap(const struct state *st, unsigned gpu, unsigned gi, int ci);
int device_remove_cap(const struct state *st, unsigned minor);

/* device_cap_path writes the path of the capability file. */
void device_cap_path(const struct state *st, unsigned gpu, unsigned gi, int ci, char *path, size_t size);

/* device_may_open reports whether the calling process may open the device file. */
bool device_may_open(const char *path);

#endif
