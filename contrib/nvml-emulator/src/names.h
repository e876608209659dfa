/* This header declares the names of NVML's return codes and of the calls that faults and latencies apply to. */
#ifndef EMU_NAMES_H
#define EMU_NAMES_H

#include "board.h"

/*
 * EMU_CALLS has a single name for all versions and variants of a call. For example, CREATE_GI means both
 * nvmlDeviceCreateGpuInstance and nvmlDeviceCreateGpuInstanceWithPlacement. RESET is not an NVML call, but a GPU reset
 * by nvidia-smi or by nvmlDeviceSetMigMode.
 */
/* clang-format off */
#define EMU_CALLS(X) \
    X(INIT) X(COUNT) X(HANDLE) X(IDENTITY) X(MEMORY) X(PROCESSES) X(UTILIZATION) X(EVENTS) \
    X(GET_MIG_MODE) X(SET_MIG_MODE) X(MIG_DEVICES) X(ATTRIBUTES) X(PROFILES) X(PLACEMENTS) X(CAPACITY) \
    X(LIST_GI) X(GI_INFO) X(CREATE_GI) X(DESTROY_GI) X(LIST_CI) X(CI_INFO) X(CREATE_CI) X(DESTROY_CI) \
    X(GPM) X(RESET) X(P2P) X(FABRIC) X(SET_LIMITS) X(GET_LIMITS)
/* clang-format on */

enum emu_call {
#define X(name) CALL_##name,
    EMU_CALLS(X) CALL_KINDS
#undef X
};

/* call_name returns the name of a call, such as "CREATE_GI". call_by_name returns -1 for an unknown name. */
const char *call_name(int call);
int call_by_name(const char *name);

/*
 * rc_name returns the name of a return code without the prefix NVML_ERROR_, for example "IN_USE". rc_text returns the
 * result of nvmlErrorString. rc_by_name accepts a name with or without the prefix, and returns -1 for an unknown
 * name.
 */
const char *rc_name(nvmlReturn_t rc);
const char *rc_text(nvmlReturn_t rc);
int rc_by_name(const char *name);

#endif
