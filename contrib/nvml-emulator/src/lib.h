/* Inside libnvidia-ml.so.1: handles, and the frame that every call runs in. */
#ifndef EMU_LIB_H
#define EMU_LIB_H

#include "ops.h"
#include "rules.h"

/* A call, from entering the library to leaving it. The caller sets id, and write or root where they apply; call_*
 * resolves the handle, begins the transaction, and fills in the rest; call_end commits and ends it.
 *
 * Half of the latency passes before the transaction and half after it, without the lock, so a caller that is killed
 * inside a slow call may find either outcome, as with a driver. */
struct call {
    enum emu_call id;
    bool write; /* changes instances */
    bool root;  /* "requires privileged user" in NVML's documentation */
    int profile; /* NVML's id of the profile to be made, for the latency; set by creates only */
    struct event event; /* logged by call_end if it has a name */

    struct txn t;
    struct state *st;
    int gpu, gi_id, ci_id; /* -1 where the handle names none */
    struct gpu_state *g;
    const struct board *b;
    struct gi_state *gi;
    struct ci_state *ci;
    nvmlReturn_t instead; /* a fault: do the work, answer this */
    unsigned tail_ms;
};

#define CALL(kind) {.id = (kind), .profile = -1, .gpu = -1, .gi_id = -1, .ci_id = -1}

/* Each answers NVML_SUCCESS with the transaction open, or an error with nothing left to do. */
nvmlReturn_t call_system(struct call *c);
nvmlReturn_t call_any_device(struct call *c, nvmlDevice_t device); /* a GPU, or a MIG device */
nvmlReturn_t call_gpu(struct call *c, nvmlDevice_t device);        /* a GPU only */
nvmlReturn_t call_gpu_index(struct call *c, unsigned gpu);
nvmlReturn_t call_gi(struct call *c, nvmlGpuInstance_t gi);
nvmlReturn_t call_ci(struct call *c, nvmlComputeInstance_t ci);
nvmlReturn_t call_end(struct call *c, nvmlReturn_t rc);

/* Handles are places in static tables, one for each place of the hardware. An instance's handle is stamped with the
 * instance it was given out for; after that one's destruction it is invalid until the place is handed out again,
 * which NVML allows ("Handles may be reused"). */
enum kind { KIND_GPU = 1, KIND_MIG, KIND_GI, KIND_CI };

struct place {
    uint64_t serial;
    uint8_t kind, gpu, gi, ci;
};

nvmlDevice_t handle_gpu(unsigned gpu);
nvmlDevice_t handle_mig(unsigned gpu, unsigned gi, unsigned ci, uint64_t serial);
nvmlGpuInstance_t handle_gi(unsigned gpu, unsigned gi, uint64_t serial);
nvmlComputeInstance_t handle_ci(unsigned gpu, unsigned gi, unsigned ci, uint64_t serial);

/* handle_place copies a handle's place; false for a pointer that is no handle of ours, or none given out yet. */
bool handle_place(const void *handle, struct place *p);

/* lib_copy answers a string, or NVML_ERROR_INSUFFICIENT_SIZE. */
nvmlReturn_t lib_copy(char *to, unsigned length, const char *text);

bool lib_initialized(void);

#endif
