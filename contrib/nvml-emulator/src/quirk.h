/*
 * This header declares the emulator's quirks. A quirk is a way in which the emulated driver differs from every known one.
 * `caelumd qualify` must notice each of them. A quirk is set if the empty file <state>.quirk-<name> exists.
 */
#ifndef EMU_QUIRK_H
#define EMU_QUIRK_H

#include <stdbool.h>

enum quirk {
    QUIRK_FEW_SMS,         /* MIG devices have fewer SMs than their profile */
    QUIRK_MOVING_IDS,      /* the GPU instance id of a placement changes with each instance */
    QUIRK_CI_IDS,          /* compute instance ids begin with 1 */
    QUIRK_COUNTS,          /* the instance count of each profile is too high */
    QUIRK_STALE_LIST,      /* a session does not see GPU instances that other processes create later */
    QUIRK_DESTROY_BUSY,    /* compute instances in use can be destroyed */
    QUIRK_NO_PROCESS_IDS,  /* process lists do not contain instance ids */
    QUIRK_OPEN_MONITOR,    /* calls that require mig/monitor succeed without it */
    QUIRK_MODE_WHILE_HELD, /* a MIG mode change takes effect although a process has the GPU open */
    QUIRK_P2P,             /* NVLinks are reported with MIG mode on */
    QUIRK_FORGETFUL,       /* the instances are gone when a process ends its session */
    QUIRK_NO_ENFORCEMENT,  /* limits of cgroups do not prevent allocations */
    QUIRK_HIDDEN_LIMIT,    /* processes see the GPU's memory instead of the limit of their cgroup */
    QUIRK_MISCOUNT,        /* the memory in use of a cgroup is reported as 0 */
    QUIRK_MANAGED_STAYS,   /* managed memory prevents other allocations */
    QUIRK_STICKY_LIMIT,    /* a limit cannot be removed */
    QUIRK_COUNT,
};

/* quirk_names has a name for each quirk, such as "few-sms". */
extern const char *const quirk_names[QUIRK_COUNT];

/* quirk_path writes the path of the file that sets the quirk. */
void quirk_path(enum quirk q, char path[600]);

/* quirk reports whether the quirk is set. */
bool quirk(enum quirk q);

/* quirk_clear removes all quirks. */
void quirk_clear(void);

#endif
