/*
 * This header declares the state of the emulated machine and its transactions. The state is a single file, shared by
 * all processes that load the library.
 *
 * A transaction opens the file, locks it with flock, and reads the complete state. If a process is killed, the kernel
 * releases its lock. The file holds two copies of the state, each with a sequence number and a checksum. A commit
 * overwrites the older one. If a writer is killed during the commit, this copy has a wrong checksum, and the next
 * transaction uses the other one.
 *
 * The state also holds the log lines of the last commit, and their offset in the log. If a writer is killed before it
 * has appended these lines to the log, the next writer does so, and thus the log always agrees with the state.
 */
#ifndef EMU_STATE_H
#define EMU_STATE_H

#include <stddef.h>

#include "names.h"

#define EMU_DEFAULT_STATE "/run/nvml-emulator/state"
#define EMU_VERSION 5
#ifndef EMU_MAX_GPUS
#define EMU_MAX_GPUS 16 /* with more GPUs, --nvlink does not work */
#endif
#define EMU_MAX_GI 15 /* ids 0 to 14 on an 8-unit grid */
#define EMU_MAX_CI 8
#define EMU_MAX_CLIENTS 256
#define EMU_MAX_FAULTS 32
#define EMU_MAX_CGROUPS 64 /* cgroups that have a limit, or whose processes use a GPU */
#define EMU_LOG_MAX 8192   /* bytes of log lines in one commit */
#define EMU_BUSY 10000     /* the SM utilization of an instance or a GPU whose SMs are always busy */
#define EMU_WHOLE 0xff     /* in place of an instance id: the client uses the whole GPU, without MIG */

struct ci_state {
    uint64_t serial; /* unique among all instances of the machine, including destroyed ones */
    uint8_t uuid[16];
    uint8_t used, slices, start, profile /* NVML_COMPUTE_INSTANCE_PROFILE_* */, pad[4];
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
    uint32_t board;           /* index into boards */
    uint8_t mig, mig_pending; /* the current MIG mode, and the mode after the next activation */
    uint8_t lost, realistic;
    uint8_t uuid[16];
    uint64_t xid_seq; /* the number of critical errors so far */
    uint32_t xid, xid_gi;
    uint32_t latency_ms[CALL_KINDS + CALL_KINDS % 2];
    uint16_t nvlink; /* a bit for each GPU to which this one has NVLinks */
    uint8_t held;    /* a simulated client holds the GPU (nvml-emulator hold) */
    uint8_t swapped; /* the ids of GPU instances count the second half of the grid first */
    uint8_t persistence;
    uint8_t reboot; /* the GPU is unusable until a reboot */
    uint8_t pad[2];
    uint64_t fabric_ms; /* the time (CLOCK_REALTIME, ms) when the GPU's registration with the fabric is complete */
    struct drift drift[BOARD_MAX_PROFILES];
    struct gi_state gi[EMU_MAX_GI];
};

/*
 * struct client describes a process that uses an instance or a whole GPU. A process that uses several GPUs has one
 * entry for each GPU.
 */
struct client {
    uint64_t start_time; /* clock ticks from boot to the start; distinguishes processes that reuse a pid */
    uint64_t ci_serial;  /* 0 for a whole GPU */
    uint32_t pid;        /* 0 for a free entry */
    uint32_t memory_mib;
    uint32_t busy; /* share of the instance's or GPU's SMs, in units of 1/EMU_BUSY */
    uint8_t gpu, gi, ci /* gi and ci are EMU_WHOLE for a whole GPU */;
    uint8_t graphics; /* a graphics process, not a compute process */
    uint8_t cgroup;   /* index + 1 of the cgroup that is charged for the memory, or 0 */
    uint8_t managed;  /* the memory is managed: it moves to the host's memory if other processes need the GPU's */
    uint8_t pad[6];
};

/* struct cgroup describes the memory limits of a cgroup (cgroup.h). */
struct cgroup {
    uint64_t inode;               /* of the cgroup's directory; 0 for a free entry */
    uint64_t limit[EMU_MAX_GPUS]; /* bytes; 0 if the driver knows none, UINT64_MAX if it was removed */
    char path[184];
};

enum memory_limits {
    LIMITS_NONE,
    LIMITS_MISC,
    LIMITS_DMEM,
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
    uint16_t activation;              /* the activation status of SET_MIG_MODE, or 0 for the actual status */
    uint32_t nth, times;              /* calls before the first failure, and calls that fail */
    int32_t rc;
};

/* enum mode_reset lists how a GPU whose MIG mode changes only after a reset may behave. */
enum mode_reset {
    MODE_RESET_AUTO,   /* SET_MIG_MODE resets the GPU, unless a client has it open */
    MODE_RESET_MANUAL, /* an administrator must reset the GPU */
    MODE_RESET_NEVER,  /* nvidia-smi cannot reset any GPU; the machine must be rebooted */
};

/* Properties of the machine, in state.host. */
#define EMU_FABRIC 1      /* it has NVSwitches and Fabric Manager */
#define EMU_PASSTHROUGH 2 /* it is a virtual machine with passed-through GPUs */
#define EMU_DRM 4         /* the kernel module nvidia_drm is loaded */
#define EMU_BOOT_CONFIG 8 /* the driver restores the instances when it is loaded */
#define EMU_STALE 16      /* a process may find MIG devices that another process has destroyed */

struct state {
    uint32_t ngpus, repeat_uuids;
    uint64_t seed, serial;
    char dev_root[256];         /* empty: no device files */
    char proc_root[248];        /* empty: no /proc files */
    uint32_t keep_device_files; /* NVreg_ModifyDeviceFiles=0: nvidia-modprobe creates no capability files */
    uint32_t mode_reset;        /* enum mode_reset */
    uint32_t nvml_clients;      /* a process that has called nvmlInit is a client of all GPUs */
    uint32_t host;              /* bits EMU_* */
    uint32_t fabric_delay_ms;   /* the duration of the registration with the fabric */
    uint32_t memory_limits;     /* enum memory_limits: the backend for memory limits of cgroups */
    char driver_version[32];
    struct gpu_state gpu[EMU_MAX_GPUS];
    struct client client[EMU_MAX_CLIENTS];
    struct fault fault[EMU_MAX_FAULTS];
    struct cgroup cgroup[EMU_MAX_CGROUPS];
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
    enum crash crash; /* the point in the next commit at which the process is killed (fault injection) */
    unsigned ndoomed; /* the number of minor numbers in doomed, whose access files the next commit will remove */
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
 * txn_log adds a line to those that the next commit appends to the log. A line that does not fit into the buffer is
 * dropped, and a message is printed.
 */
void txn_log(struct txn *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/*
 * txn_commit writes the state and the log. A transaction may have several commits. It returns 0, or -1 with t->error
 * set.
 */
int txn_commit(struct txn *t);

void txn_end(struct txn *t);

/* state_sane reports whether the state is valid (sane.c). txn_begin returns an error for an invalid state. */
bool state_sane(const struct state *st);

/* client_live reports whether the client's process is still running. */
bool client_live(const struct client *c);

/* client_admin reports whether the calling process has CAP_SYS_ADMIN. */
bool client_admin(void);

/* process_start_time returns field 22 of /proc/<pid>/stat, or 0 for a process that has ended or is a zombie. */
uint64_t process_start_time(uint32_t pid);

#endif
