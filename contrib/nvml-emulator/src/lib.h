/* Internals of libnvidia-ml.so.1: handles, and the start and end of every call. */
#ifndef EMU_LIB_H
#define EMU_LIB_H

#include "ops.h"
#include "rules.h"

/* One call of the library. The caller sets id, and also write or root if they apply. The functions call_* resolve the
 * handle, begin the transaction and fill the other fields. call_end commits and ends the transaction.
 *
 * Half of the latency passes before the transaction and half after it, in both cases without the lock. If a caller is
 * killed during a slow call, the change may therefore have been made or not, as with a real driver. */
struct call {
    enum emu_call id;
    bool write;         /* changes instances */
    bool root;          /* "requires privileged user" in NVML's documentation */
    int profile;        /* NVML's id of the new instance's profile, for the latency */
    struct event event; /* call_end logs the event if it has a name */

    struct txn t;
    struct state *st;
    int gpu, gi_id, ci_id; /* -1 if the handle does not contain it */
    struct gpu_state *g;
    const struct board *b;
    struct gi_state *gi;
    struct ci_state *ci;
    nvmlReturn_t instead; /* a fault: the code to return after the change is made */
    unsigned tail_ms;
};

#define CALL(kind) ((struct call){.id = (kind), .profile = -1, .gpu = -1, .gi_id = -1, .ci_id = -1})

/* Each function returns NVML_SUCCESS with an open transaction, or an error after it has ended the call. */
nvmlReturn_t call_system(struct call *c);
nvmlReturn_t call_any_device(struct call *c, nvmlDevice_t device); /* a GPU, or a MIG device */
nvmlReturn_t call_gpu(struct call *c, nvmlDevice_t device);        /* a GPU only */
nvmlReturn_t call_gpu_index(struct call *c, unsigned gpu);
nvmlReturn_t call_gi(struct call *c, nvmlGpuInstance_t gi);
nvmlReturn_t call_ci(struct call *c, nvmlComputeInstance_t ci);
nvmlReturn_t call_end(struct call *c, nvmlReturn_t rc);

/* Handles point into static tables with one entry for each place of the hardware. The entry of an instance records the
 * instance for which the handle was returned. When that instance is destroyed, the handle becomes invalid until a
 * handle for the same place is returned again. NVML allows this ("Handles may be reused"). */
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

/* handle_place copies a handle's place. It returns false if the pointer is not a handle, or if the handle has not been
 * returned to a client yet. */
bool handle_place(const void *handle, struct place *p);

/* lib_copy copies a string to the caller's buffer, or returns NVML_ERROR_INSUFFICIENT_SIZE. */
nvmlReturn_t lib_copy(char *to, unsigned length, const char *text);

bool lib_initialized(void);

#endif
