/*
 * This header declares the state of the emulated machine and its transactions. The state is one file, which all
 * processes that load the library share.
 *
 * A transaction opens the file, locks it with flock, and reads the complete state. If a process is killed, the kernel
 * releases the lock of the process. The file contains two copies, each with a sequence number and a checksum. A commit
 * overwrites the older copy. If a writer is killed during the commit, the older copy has a wrong checksum, and the next
 * transaction uses the other copy.
 *
 * The state also contains the log lines of the last commit, and the offset of these lines in the log. If a writer is
 * killed before the writer has appended the lines to the log, the next writer appends the lines. The log therefore
 * always agrees with the state.
 */
#ifndef EMU_STATE_H
#define EMU_STATE_H

#include <stddef.h>

#include "names.h"

#define EMU_DEFAULT_STATE "/run/nvml-emulator/state"
#define EMU_VERSION 2
#define EMU_MAX_GPUS 16
#define EMU_MAX_GI 15 /* ids 0 to 14 of an 8-unit grid */
#define EMU_MAX_CI 8
#define EMU_MAX_CLIENTS 256
#define EMU_MAX_FAULTS 32
#define EMU_LOG_MAX 8192 /* bytes of log lines in one commit */
#define EMU_BUSY 10000   /* the SM utilization of an instance whose SMs are always busy */

struct ci_state {
    uint64_t serial; /* unique among all instances of the machine, including destroyed instances */
    uint8_t uuid[16];
    uint8_t used, slices, start, pad[5];
};

struct gi_state { /* the index is the instance id */
    uint64_t serial;
    uint8_t used, profile /* index into board.profiles */, start, size;
    uint8_t held; /* a simulated client uses the instance (nvml-emulator hold) */
    uint8_t pad[3];
    struct ci_state ci[EMU_MAX_CI];
};

struct drift { /* values of a profile that the driver reports instead of the values in the table */
    char name[24];
    uint32_t memory_mib, pad;
};

struct gpu_state {
    char board_name[32];
    uint32_t board; /* index into boards */
    uint8_t mig, mig_pending, lost, realistic;
    uint8_t uuid[16];
    uint64_t xid_seq; /* the number of critical errors so far */
    uint32_t xid, xid_gi;
    uint32_t latency_ms[CALL_KINDS + CALL_KINDS % 2];
    struct drift drift[BOARD_MAX_PROFILES];
    struct gi_state gi[EMU_MAX_GI];
};

/* struct client describes a process that uses an instance. */
struct client {
    uint64_t start_time; /* clock ticks from boot to the start; distinguishes processes that had one pid at different times */
    uint64_t ci_serial;
    uint32_t pid; /* 0 for a free entry */
    uint32_t memory_mib;
    uint32_t busy; /* share of the instance's SMs, in units of 1/EMU_BUSY */
    uint8_t gpu, gi, ci, pad;
};

enum crash {
    CRASH_NONE,
    CRASH_BEFORE,
    CRASH_TORN,
    CRASH_AFTER,
};

struct fault {
    uint8_t used, call, after, crash; /* after is true if the call makes its change before it fails */
    int16_t gpu;                      /* -1 for all GPUs */
    uint16_t pad;
    uint32_t nth, times; /* the first call that fails (1: the next call); the number of calls that fail (0: no limit) */
    int32_t rc;
};

struct state {
    uint32_t ngpus, repeat_uuids;
    uint64_t seed, serial;
    char dev_root[256];         /* empty: no device files */
    char proc_root[248];        /* empty: no /proc files */
    uint64_t keep_device_files; /* NVreg_ModifyDeviceFiles=0: capability files are neither created nor removed */
    struct gpu_state gpu[EMU_MAX_GPUS];
    struct client client[EMU_MAX_CLIENTS];
    struct fault fault[EMU_MAX_FAULTS];
    uint64_t log_off;
    uint32_t log_len, pad;
    char log[EMU_LOG_MAX];
};

enum txn_mode {
    TXN_READ,
    TXN_WRITE,
};
enum txn_error {
    TXN_OK,
    TXN_MISSING,
    TXN_DENIED,
    TXN_WRONG_VERSION,
    TXN_DAMAGED,
};

struct txn {
    int fd, slot;
    char path[512], error[768]; /* error is a message with a remedy */
    struct copy *copy;
    struct state *st;
    enum crash crash; /* the point of the next commit at which the process is killed (fault injection) */
    unsigned ndoomed; /* the number of minors in doomed, whose files the next commit removes */
    uint16_t doomed[EMU_MAX_GI * (1 + EMU_MAX_CI)];
};

/* state_path returns $NVML_EMULATOR_STATE, or EMU_DEFAULT_STATE. */
const char *state_path(void);

/*
 * txn_begin locks and reads the state. A write transaction also completes the log and removes clients that have ended.
 */
enum txn_error txn_begin(struct txn *t, const char *path, enum txn_mode mode);

/* txn_create creates the file, or reuses an existing file, and begins a write transaction with an empty state. */
enum txn_error txn_create(struct txn *t, const char *path);

/*
 * txn_log adds a line to the lines that the next commit appends to the log. If the line does not fit into the buffer,
 * txn_log drops the line and prints a message.
 */
void txn_log(struct txn *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* txn_commit writes the state and the log. A transaction may have several commits. txn_commit returns 0, or -1 with
 * t->error set. */
int txn_commit(struct txn *t);

void txn_end(struct txn *t);

/* state_sane reports whether the state is valid (sane.c). txn_begin returns an error for an invalid state. */
bool state_sane(const struct state *st);

/* client_live reports whether the process of the client is still running. */
bool client_live(const struct client *c);

/* process_start_time returns field 22 of /proc/<pid>/stat, or 0 for a process that has ended or is a zombie. */
uint64_t process_start_time(uint32_t pid);

#endif
