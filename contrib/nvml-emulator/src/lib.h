/*
 * This header declares the internal functions of libnvidia-ml.so.1: the handles, and what happens at the start and end
 * of every call.
 */
#ifndef EMU_LIB_H
#define EMU_LIB_H

#include "ops.h"
#include "rules.h"

/*
 * struct call holds the data of one library call. The caller sets id, and write, root or admin if they apply. The
 * call_* functions resolve the handle, begin the transaction and fill in the other fields; call_end commits and ends
 * the transaction.
 *
 * Half of the latency passes before the transaction, and half after it. During this time, the state is not locked. As
 * with a real driver, if a process is killed during a slow call, the library may or may not have made the change.
 */
struct call {
    enum emu_call id;
    bool write;         /* changes instances */
    bool root;          /* "requires privileged user" in NVML's documentation */
    bool admin;         /* requires CAP_SYS_ADMIN */
    bool config;        /* requires the capability mig/config */
    bool monitor;       /* requires the capability mig/monitor if the handle is a GPU whose MIG mode is on; for a MIG
                           device, its own capability files are sufficient */
    bool subscribes;    /* requires the GPU instance's capability file */
    bool walks;         /* searches through the MIG devices of all GPUs */
    int profile;        /* NVML's id of the new instance's profile, for the latency */
    struct event event; /* call_end logs the event if it has a name */

    struct txn t;
    struct state *st;
    int gpu, gi_id, ci_id; /* -1 if the handle refers to no GPU, GI or CI */
    struct gpu_state *g;
    const struct board *b;
    struct gi_state *gi;
    struct ci_state *ci;
    nvmlReturn_t instead;    /* the return code of a fault that occurs after the change */
    nvmlReturn_t activation; /* the activation status of a fault in a MIG mode change, or 0 */
    unsigned tail_ms;
};

#define CALL(kind) ((struct call){.id = (kind), .profile = -1, .gpu = -1, .gi_id = -1, .ci_id = -1})

/* Each call_ function either begins a transaction and returns NVML_SUCCESS, or ends the call and returns an error. */
nvmlReturn_t call_system(struct call *c);
nvmlReturn_t call_any_device(struct call *c, nvmlDevice_t device); /* a GPU, or a MIG device */
nvmlReturn_t call_gpu(struct call *c, nvmlDevice_t device);        /* only a GPU */
nvmlReturn_t call_gpu_index(struct call *c, unsigned gpu);
nvmlReturn_t call_gi(struct call *c, nvmlGpuInstance_t gi);
nvmlReturn_t call_ci(struct call *c, nvmlComputeInstance_t ci);
nvmlReturn_t call_end(struct call *c, nvmlReturn_t rc);

/*
 * A handle is a pointer into a static table with one entry for each place in the hardware. The entry records the
 * instance for which the library returned the handle. When this instance is destroyed, the handle becomes invalid, but
 * it becomes valid again when the library returns a handle for a new instance at the same place. NVML allows this
 * ("Handles may be reused").
 */
enum kind {
    KIND_GPU = 1,
    KIND_MIG,
    KIND_GI,
    KIND_CI,
};

struct place {
    uint64_t serial;
    uint8_t kind, gpu, gi, ci;
};

nvmlDevice_t handle_gpu(unsigned gpu);
nvmlDevice_t handle_mig(unsigned gpu, unsigned gi, unsigned ci, uint64_t serial);
nvmlGpuInstance_t handle_gi(unsigned gpu, unsigned gi, uint64_t serial);
nvmlComputeInstance_t handle_ci(unsigned gpu, unsigned gi, unsigned ci, uint64_t serial);

/*
 * handle_place copies the place of a handle. It returns false if the pointer is not a handle, or if no client has
 * received it yet.
 */
bool handle_place(const void *handle, struct place *p);

/*
 * lib_copy copies a string to the caller's buffer. It returns NVML_ERROR_INSUFFICIENT_SIZE if the buffer is too small.
 */
nvmlReturn_t lib_copy(char *to, unsigned length, const char *text);

bool lib_initialized(void);

/* lib_driver_version returns the version of the driver that nvmlInit has found. */
const char *lib_driver_version(void);

/* lib_created records that this process has created an instance, for the quirks. */
void lib_created(uint64_t serial);

/* lib_knows reports whether an instance is older than this process's session, or was created in it. */
bool lib_knows(uint64_t serial);

#endif
