/*
 * This header declares the functions that change a GPU's MIG mode, reset the GPU to complete the change, and find the
 * clients that prevent both. They must be called within a write transaction, which the caller then commits, and the
 * caller must log an event.
 *
 * Sources: nvml.h (nvmlDeviceSetMigMode); NVIDIA's MIG User Guide ("Enable MIG Mode": before Hopper, a change needs a
 * GPU reset, and the mode persists across reboots); NVIDIA's open kernel modules 595.45.04 (g_gpu_nvoc.c,
 * RESETLESS_MIG_SUPPORTED: Hopper and later change the mode without a reset).
 */
#ifndef EMU_MODE_H
#define EMU_MODE_H

#include "state.h"

/* struct mode_users holds the clients that have a GPU open. */
struct mode_users {
    bool held;  /* a simulated client (nvml-emulator hold) */
    unsigned n; /* number of processes in pid; further processes are omitted */
    uint32_t pid[32];
};

/*
 * mode_users finds the processes that use the GPU or one of its instances, and the processes that have the GPU's
 * device file open. It reports whether there is any client. In the driver, each open descriptor of /dev/nvidia<N>
 * counts as a client, but /dev/nvidiactl does not (nv_open_device in nv.c). The process given by except is omitted,
 * unless it is 0.
 */
bool mode_users(const struct state *st, unsigned gpu, uint32_t except, struct mode_users *u);

/*
 * mode_set implements nvmlDeviceSetMigMode. If the new mode does not take effect, *activation is set to the reason.
 * forced replaces the activation status, unless it is 0. mode_set sets *reset if the caller must now reset the GPU with
 * mode_reset, in another transaction. The calling process itself does not prevent the change.
 */
nvmlReturn_t mode_set(struct txn *t, unsigned gpu, bool on, nvmlReturn_t forced, nvmlReturn_t *activation, bool *reset);

/* mode_apply makes the pending MIG mode the current one. The GPU must have no live client. */
void mode_apply(struct txn *t, unsigned gpu);

/*
 * mode_reset resets a GPU: all instances disappear, and the pending MIG mode becomes the current one. If any client
 * other than the process except has the GPU open, mode_reset changes nothing and returns NVML_ERROR_IN_USE.
 */
nvmlReturn_t mode_reset(struct txn *t, unsigned gpu, uint32_t except);

/*
 * mode_reboot changes the state of the GPU as a reboot of the machine does. GPUs whose MIG mode changes only after a
 * reset keep it; on others, it lasts only until the driver is unloaded. With EMU_BOOT_CONFIG, all GPUs keep it.
 */
void mode_reboot(struct txn *t, unsigned gpu);

#endif
