/*
 * This header declares the functions that change instances, for the library and the control command. They must be
 * called within a write transaction, which the caller then commits. The caller must also log an event, even if the
 * change failed.
 */
#ifndef EMU_OPS_H
#define EMU_OPS_H

#include "state.h"

/* struct event is an event for the log. -1 and NULL are written as a dash. */
struct event {
    const char *name;
    int gpu, gi, ci, profile, start, size;
    const uint8_t *uuid; /* of a compute instance, or of a whole GPU if gi is -1 */
    int pid;
    int mig; /* the MIG mode of the GPU after the event */
};

#define EVENT(n) \
    ((struct event){.name = (n), .gpu = -1, .gi = -1, .ci = -1, .profile = -1, .start = -1, .size = -1, .pid = -1, .mig = -1})

void ops_log(struct txn *t, const struct event *e, nvmlReturn_t rc);

/* ops_event_client sets the event fields that describe a client and its device. */
void ops_event_client(const struct state *st, const struct client *c, struct event *e);

/* ops_create_gi creates a GPU instance and sets *id. If start is -1, the emulated driver chooses the placement. */
nvmlReturn_t ops_create_gi(struct txn *t, unsigned gpu, int profile, int start, unsigned *id);
nvmlReturn_t ops_destroy_gi(struct txn *t, unsigned gpu, unsigned gi);

/*
 * ops_create_ci creates a compute instance. profile is NVML_COMPUTE_INSTANCE_PROFILE_*, which the GPU instance must have.
 * If start is -1, it uses the CI profile's first free start.
 */
nvmlReturn_t ops_create_ci(struct txn *t, unsigned gpu, unsigned gi, unsigned profile, int start, unsigned *id);
nvmlReturn_t ops_destroy_ci(struct txn *t, unsigned gpu, unsigned gi, unsigned ci);

/* ops_wipe removes every instance of a GPU, as a reset does. */
void ops_wipe(struct txn *t, unsigned gpu);

/* ops_restore gives the instances of a GPU new UUIDs, as a driver does that restores them when it is loaded. */
void ops_restore(struct txn *t, unsigned gpu);

/* ops_raise_xid raises a critical error event. ops_lose makes the GPU fall off the bus. */
void ops_raise_xid(struct gpu_state *g, unsigned xid, unsigned gi);
void ops_lose(struct gpu_state *g);

/* ops_reap removes the clients whose process has ended, and logs an event for each of them. */
void ops_reap(struct txn *t);

/*
 * ops_clients returns the number of live clients of an instance. With ci -1, it counts those of the whole GPU instance;
 * with gi -1, those of the GPU and all its instances.
 */
unsigned ops_clients(const struct state *st, unsigned gpu, int gi, int ci);

/*
 * ops_used_mib returns the memory that the live clients of the GPU instance use, in MiB. With gi -1, it returns the
 * memory that all clients of the GPU use.
 */
unsigned ops_used_mib(const struct state *st, unsigned gpu, int gi);

/*
 * ops_busy returns the share of the GPU instance's SMs that live clients keep busy, in units of 1/EMU_BUSY. With gi
 * EMU_WHOLE, it returns the share of a whole GPU's SMs. The result is at most EMU_BUSY.
 */
unsigned ops_busy(const struct state *st, unsigned gpu, unsigned gi);

/* ops_uuid_text writes the prefix ("MIG-" or "GPU-") and the 36 characters of the UUID. */
#define UUID_TEXT 48
void ops_uuid_text(const char *prefix, const uint8_t uuid[16], char text[UUID_TEXT]);

/* ops_make_uuid derives a UUID from the state's seed and two numbers. */
void ops_make_uuid(const struct state *st, uint64_t a, uint64_t b, uint8_t uuid[16]);

/* ops_find_ci finds a compute instance by its UUID in text form. */
bool ops_find_ci(const struct state *st, const char *uuid, unsigned *gpu, unsigned *gi, unsigned *ci);

/*
 * ops_find_gpu finds a GPU by the first characters of its UUID, including the prefix "GPU-". It returns the GPU's
 * index, or -1 if no GPU or several GPUs match.
 */
int ops_find_gpu(const struct state *st, const char *uuid);

#endif
