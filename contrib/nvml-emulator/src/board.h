/*
 * This header declares the GPU models and their MIG profiles. boards.awk generates the table from
 * internal/core/mig/models.txt.
 */
#ifndef EMU_BOARD_H
#define EMU_BOARD_H

#include <stdbool.h>
#include <stdint.h>

/*
 * nvml.h must not rename the unversioned functions, whose names are part of the ABI and are used by old clients.
 */
#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include <nvml.h>

#define BOARD_MAX_PROFILES 16
#define BOARD_MAX_STARTS 8

enum media {
    MEDIA_DEC,
    MEDIA_ENC,
    MEDIA_JPEG,
    MEDIA_OFA,
    MEDIA_KINDS,
};

struct profile {
    const char *name; /* 1g.5gb */
    unsigned id;      /* NVML's profile id; GPU models may use different ids for the same profile */
    unsigned slices;  /* compute slices */
    unsigned size;    /* units of the GPU's grid */
    unsigned limit;   /* the maximum number of instances on one GPU */
    unsigned sms, memory_mib, ce;
    unsigned media[MEDIA_KINDS];
    bool gfx;
    unsigned nvml; /* NVML_GPU_INSTANCE_PROFILE_* */
    unsigned nstarts;
    unsigned starts[BOARD_MAX_STARTS];
};

struct board {
    const char *name;   /* A100-40GB */
    const char *type;   /* the Type in gres.conf */
    const char *device; /* the result of nvmlDeviceGetName */
    unsigned grid;      /* units: 4, 8 or 12; 1 for a GPU without MIG */
    unsigned pci_id;
    bool live_mode; /* MIG mode changes immediately (Hopper and later); otherwise only after a reset */
    unsigned arch;  /* NVML_DEVICE_ARCH_* */
    unsigned total_mib;
    unsigned nprofiles; /* 0: the GPU does not support MIG */
    struct profile profiles[BOARD_MAX_PROFILES];
};

extern const struct board boards[];
extern const int nboards;

#endif
