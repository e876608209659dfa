/*
 * This header declares the hardware's rules, which apply to the state of one GPU. The functions never change a state or
 * make system calls.
 */
#ifndef EMU_RULES_H
#define EMU_RULES_H

#include "state.h"

const struct board *rules_board(const struct gpu_state *g);
const struct profile *rules_profile(const struct gpu_state *g, const struct gi_state *gi);

/*
 * The rules_profile_by_* functions find a profile by NVML's profile id, by the NVML_GPU_INSTANCE_PROFILE_* constant,
 * or by name. They return the profile's index, or -1 if the GPU model does not have it.
 */
int rules_profile_by_id(const struct board *b, unsigned id);
int rules_profile_by_nvml(const struct board *b, unsigned nvml);
int rules_profile_by_name(const struct gpu_state *g, const char *name);

/*
 * rules_name and rules_memory_mib return the name and the memory that the GPU's driver reports for a profile. They
 * come from the table of GPU models unless `nvml-emulator drift` has changed them.
 */
const char *rules_name(const struct gpu_state *g, int profile);
unsigned rules_memory_mib(const struct gpu_state *g, int profile);

/*
 * rules_gi_id returns the id of a GPU instance (GI) at a placement. The whole GPU has the id 0, halves 1 and 2,
 * quarters 3 to 6, and eighths 7 to 14. On a swapped GPU, the second half of the grid has the lower ids.
 */
unsigned rules_gi_id(const struct gpu_state *g, unsigned start, unsigned size);

/*
 * rules_cap_minor returns the minor number of the capability file of a compute instance, or of a GPU instance if ci is
 * -1.
 */
unsigned rules_cap_minor(unsigned gpu, unsigned gi, int ci);

/* rules_cap_of is the inverse of rules_cap_minor. It returns false if the minor number belongs to no instance's file. */
bool rules_cap_of(unsigned minor, unsigned *gpu, unsigned *gi, int *ci);

/* rules_bus returns a GPU's PCI bus number. Each GPU has its own bus. */
unsigned rules_bus(unsigned gpu);

bool rules_legal_start(const struct profile *p, unsigned start);
bool rules_units_free(const struct gpu_state *g, unsigned start, unsigned size);

/*
 * rules_admits reports whether the profile's limit and the media engines allow one more instance, regardless of free
 * units. The media engines are a separate resource (RTX PRO 6000, +me).
 */
bool rules_admits(const struct gpu_state *g, int profile);

/* rules_capacity returns how many more instances of the profile the GPU has room for. */
unsigned rules_capacity(const struct gpu_state *g, int profile);

/*
 * rules_driver_start returns the start that the driver would choose, or -1 if none is free. The driver chooses the one
 * that leaves the most starts free, over all profiles.
 */
int rules_driver_start(const struct gpu_state *g, int profile);

/*
 * rules_ci_slices returns the compute slices (1, 2, 3, 4 or 7) of a compute instance profile in a GPU instance of the
 * given profile, and rules_ci_sms its SMs. Both return 0 if the GPU instance does not have this profile. ci_profile is
 * NVML_COMPUTE_INSTANCE_PROFILE_*. Profile 1_SLICE_REV1 exists only on GPU models whose 1g profile with twice the memory
 * has more SMs than the others (from Hopper); it then has as many SMs.
 */
unsigned rules_ci_slices(const struct board *b, unsigned gi_profile, unsigned ci_profile);
unsigned rules_ci_sms(const struct board *b, unsigned gi_profile, unsigned ci_profile);

/* rules_ci_full returns the CI profile that has all SMs of a GPU instance of the given profile. */
unsigned rules_ci_full(const struct board *b, unsigned gi_profile);
/*
 * rules_ci_starts writes the possible starts of a CI profile in the GI to starts, and returns their number, at most 8.
 */
unsigned rules_ci_starts(unsigned gi_slices, unsigned ci_profile, unsigned starts[8]);
bool rules_ci_free(const struct gi_state *gi, unsigned start, unsigned ci_profile);
unsigned rules_ci_capacity(const struct gi_state *gi, unsigned gi_slices, unsigned ci_profile);

/* rules_latency_ms returns the duration, in milliseconds, of a call on the GPU. profile is the instance's profile, or -1. */
unsigned rules_latency_ms(const struct gpu_state *g, int call, int profile);

/* rules_walk_ms returns the duration, in milliseconds, of a search through the GPU's MIG devices for a UUID. */
unsigned rules_walk_ms(const struct gpu_state *g);

#endif
