/* Device files: character devices that no driver stands behind. open() answers ENXIO to who may open them and EACCES
 * to who may not, which is all that a test of permissions needs. */
#ifndef EMU_DEVICE_H
#define EMU_DEVICE_H

#include "state.h"

#define EMU_MAJOR 60 /* LOCAL/EXPERIMENTAL USE in the kernel's list: no driver ever owns it */

/* device_setup makes nvidia<N>, nvidiactl and nvidia-caps/nvidia-cap{1,2}, after removing what an earlier init left.
 * It refuses a folder with the device files of a real driver. 0, or -1 with a message in error. */
int device_setup(const struct state *st, char *error, size_t size);

/* device_add_cap makes the cap file of a GPU instance (ci -1) or compute instance, mode 0444 as the real driver does.
 * device_remove_cap removes one by its minor. Both do nothing in a state without device files, or where the driver is told to
 * leave them alone (keep_device_files). 0, or -1 with errno. */
int device_add_cap(const struct state *st, unsigned gpu, unsigned gi, int ci);
int device_remove_cap(const struct state *st, unsigned minor);

/* device_cap_path writes the path of the cap file. */
void device_cap_path(const struct state *st, unsigned gpu, unsigned gi, int ci, char *path, size_t size);

/* device_may_open: may this process use the device? */
bool device_may_open(const char *path);

#endif
