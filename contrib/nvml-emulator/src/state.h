/* The emulated machine: one file, shared by every process that loads the library, and the transactions on it.
 *
 * A transaction opens the file, locks it with flock (the kernel drops the lock of a process that is killed), and reads
 * the state whole. The file holds two copies, each with a sequence number and a checksum; a commit overwrites the older
 * one. A writer killed half-way leaves a copy whose checksum does not match, and the other copy stands.
 *
 * The lines that a commit adds to the log travel in the state with the place where they belong, so that the next
 * writer can complete what a killed one had no time to append: state and log never disagree. */
#ifndef EMU_STATE_H
#define EMU_STATE_H

#include <stddef.h>

#include "names.h"

#define EMU_DEFAULT_STATE "/run/nvml-emulator/state"
#define EMU_VERSION       2
#define EMU_MAX_GPUS      16
#define EMU_MAX_GI        15 /* ids 0 to 14 of an 8-unit grid */
#define EMU_MAX_CI        8
#define EMU_MAX_CLIENTS   256
#define EMU_MAX_FAULTS    32
#define EMU_LOG_MAX       8192
#define EMU_BUSY          10000 /* all of an instance's SMs, all the time */

struct ci_state {
    uint64_t serial; /* differs for every instance ever made */
    uint8_t uuid[16];
    uint8_t used, slices, start, pad[5];
};

struct gi_state { /* index = the instance id */
    uint64_t serial;
    uint8_t used, profile /* index into board.profiles */, start, size;
    uint8_t held; /* an artificial client (nvml-emulator hold) */
    uint8_t pad[3];
    struct ci_state ci[EMU_MAX_CI];
};

struct drift { /* what the driver says of a profile instead of the table */
    char name[24];
    uint32_t memory_mib, pad;
};

struct gpu_state {
    char board_name[32];
    uint32_t board; /* index into boards */
    uint8_t mig, mig_pending, lost, realistic;
    uint8_t uuid[16];
    uint64_t xid_seq; /* raised by one for every critical error */
    uint32_t xid, xid_gi;
    uint32_t latency_ms[CALL_KINDS + CALL_KINDS % 2];
    struct drift drift[BOARD_MAX_PROFILES];
    struct gi_state gi[EMU_MAX_GI];
};

struct client { /* a process that uses an instance */
    uint64_t start_time; /* of the process, clock ticks after boot: tells a reused pid apart */
    uint64_t ci_serial;
    uint32_t pid; /* 0: this entry is free */
    uint32_t memory_mib;
    uint32_t busy; /* ten-thousandths of the instance's SMs */
    uint8_t gpu, gi, ci, pad;
};

enum crash { CRASH_NONE, CRASH_BEFORE, CRASH_TORN, CRASH_AFTER };

struct fault {
    uint8_t used, call, after, crash; /* after: do the work, and still answer the error */
    int16_t gpu;                      /* -1: any */
    uint16_t pad;
    uint32_t nth, times; /* calls still to let pass, plus one; calls still to fail */
    int32_t rc;
};

struct state {
    uint32_t ngpus, repeat_uuids;
    uint64_t seed, serial;
    char dev_root[256]; /* empty: no device files */
    char proc_root[248]; /* empty: nothing under /proc */
    uint64_t keep_device_files; /* NVreg_ModifyDeviceFiles=0: cap files are neither made nor removed */
    struct gpu_state gpu[EMU_MAX_GPUS];
    struct client client[EMU_MAX_CLIENTS];
    struct fault fault[EMU_MAX_FAULTS];
    uint64_t log_off;
    uint32_t log_len, pad;
    char log[EMU_LOG_MAX];
};

enum txn_mode { TXN_READ, TXN_WRITE };
enum txn_error { TXN_OK, TXN_MISSING, TXN_DENIED, TXN_WRONG_VERSION, TXN_DAMAGED };

struct txn {
    int fd, slot;
    char path[512], error[768]; /* error says what is wrong and what to do */
    struct copy *copy;
    struct state *st;
    enum crash crash; /* where the next commit kills this process (fault injection) */
    unsigned ndoomed; /* minors of the cap files that the next commit removes */
    uint16_t doomed[EMU_MAX_GI * (1 + EMU_MAX_CI)];
};

/* state_path is $NVML_EMULATOR_STATE, or the default. */
const char *state_path(void);

/* txn_begin locks and reads; a writer also completes the log and forgets the clients that have died. */
enum txn_error txn_begin(struct txn *t, const char *path, enum txn_mode mode);

/* txn_create makes the file, or takes over what stands there, and begins a write with an empty state. */
enum txn_error txn_create(struct txn *t, const char *path);

/* txn_log adds a line to what the next commit appends to the log; one that has no room is counted as lost, not kept. */
void txn_log(struct txn *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* txn_commit may be called several times in a transaction. 0, or -1 with t->error set. */
int txn_commit(struct txn *t);

void txn_end(struct txn *t);

/* state_sane says whether what the state describes is a machine that there can be. txn_begin refuses any other. */
bool state_sane(const struct state *st);

/* client_live says whether the process of this entry still is the one that registered. */
bool client_live(const struct client *c);

/* process_start_time is field 22 of /proc/<pid>/stat; 0 for a process that is gone or a zombie. */
uint64_t process_start_time(uint32_t pid);

#endif
