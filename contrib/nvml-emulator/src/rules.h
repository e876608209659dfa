/* The rules of the hardware, on the state of one GPU. Nothing here changes a state or asks the system. */
#ifndef EMU_RULES_H
#define EMU_RULES_H

#include "state.h"

const struct board *rules_board(const struct gpu_state *g);
const struct profile *rules_profile(const struct gpu_state *g, const struct gi_state *gi);

/* By NVML's numbers; -1 if the board has none such. */
int rules_profile_by_id(const struct board *b, unsigned id);
int rules_profile_by_nvml(const struct board *b, unsigned nvml);
int rules_profile_by_name(const struct gpu_state *g, const char *name);

/* What this GPU's driver says of a profile: the table, or what `nvml-emulator drift` put in its place. */
const char *rules_name(const struct gpu_state *g, int profile);
unsigned rules_memory_mib(const struct gpu_state *g, int profile);

/* GI ids follow the placement: the whole GPU is 0, halves 1 and 2, quarters 3 to 6, eighths 7 to 14. */
unsigned rules_gi_id(unsigned grid, unsigned start, unsigned size);

/* Minor of /dev/nvidia-caps/nvidia-cap<minor>; ci -1 means the GPU instance itself. */
unsigned rules_cap_minor(unsigned gpu, unsigned gi, int ci);

bool rules_legal_start(const struct profile *p, unsigned start);
bool rules_units_free(const struct gpu_state *g, unsigned start, unsigned size);

/* rules_admits: may one more instance of the profile stand beside what is there, wherever there is room?
 * The limit of the profile and the media engines, which are a pool of their own (RTX PRO 6000, +me). */
bool rules_admits(const struct gpu_state *g, int profile);

/* How many more instances of the profile the GPU could take. */
unsigned rules_capacity(const struct gpu_state *g, int profile);

/* The start that the driver would choose: the one that leaves the most starts of all profiles free; -1 if none. */
int rules_driver_start(const struct gpu_state *g, int profile);

/* Compute instance profiles of a GPU instance with `slices` compute slices: sizes 1, 2, 3, 4 and 7. The id is
 * NVML_COMPUTE_INSTANCE_PROFILE_*. 0 for a profile that such an instance does not have. */
unsigned rules_ci_slices(unsigned gi_slices, unsigned ci_profile);
unsigned rules_ci_profile(unsigned ci_slices);
/* Starts of a CI profile in the GI, at most 8 of them. */
unsigned rules_ci_starts(unsigned gi_slices, unsigned ci_slices, unsigned starts[8]);
bool rules_ci_free(const struct gi_state *gi, unsigned start, unsigned slices);
unsigned rules_ci_capacity(const struct gi_state *gi, unsigned gi_slices, unsigned ci_slices);

/* Milliseconds that a call takes on this GPU. profile is that of the instance, -1 when there is none. */
unsigned rules_latency_ms(const struct gpu_state *g, int call, int profile);

#endif
