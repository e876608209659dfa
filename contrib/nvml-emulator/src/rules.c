#include "rules.h"

#include <string.h>
#include <strings.h>

const struct board *rules_board(const struct gpu_state *g)
{
    return &boards[g->board];
}

const struct profile *rules_profile(const struct gpu_state *g, const struct gi_state *gi)
{
    return &boards[g->board].profiles[gi->profile];
}

int rules_profile_by_id(const struct board *b, unsigned id)
{
    for (unsigned i = 0; i < b->nprofiles; i++)
        if (b->profiles[i].id == id)
            return (int)i;
    return -1;
}

int rules_profile_by_nvml(const struct board *b, unsigned nvml)
{
    for (unsigned i = 0; i < b->nprofiles; i++)
        if (b->profiles[i].nvml == nvml)
            return (int)i;
    return -1;
}

int rules_profile_by_name(const struct gpu_state *g, const char *name)
{
    for (unsigned i = 0; i < rules_board(g)->nprofiles; i++)
        if (strcasecmp(rules_name(g, (int)i), name) == 0 || strcasecmp(rules_board(g)->profiles[i].name, name) == 0)
            return (int)i;
    return -1;
}

const char *rules_name(const struct gpu_state *g, int profile)
{
    return g->drift[profile].name[0] ? g->drift[profile].name : rules_board(g)->profiles[profile].name;
}

unsigned rules_memory_mib(const struct gpu_state *g, int profile)
{
    return g->drift[profile].memory_mib ? g->drift[profile].memory_mib : rules_board(g)->profiles[profile].memory_mib;
}

unsigned rules_gi_id(const struct gpu_state *g, unsigned start, unsigned size)
{
    unsigned grid = rules_board(g)->grid;
    if (g->swapped && size < grid)
        start = (start + grid / 2) % grid;
    return grid / size - 1 + start / size;
}

unsigned rules_cap_minor(unsigned gpu, unsigned gi, int ci)
{
    return 3 + 135 * gpu + 9 * gi + (ci < 0 ? 0 : 1 + (unsigned)ci);
}

bool rules_cap_of(unsigned minor, unsigned *gpu, unsigned *gi, int *ci)
{
    if (minor < 3 || (minor - 3) / 135 >= EMU_MAX_GPUS)
        return false;
    *gpu = (minor - 3) / 135;
    *gi = (minor - 3) % 135 / 9;
    *ci = (int)((minor - 3) % 9) - 1;
    return true;
}

unsigned rules_bus(unsigned gpu)
{
    return 0x10 + gpu;
}

bool rules_legal_start(const struct profile *p, unsigned start)
{
    for (unsigned i = 0; i < p->nstarts; i++)
        if (p->starts[i] == start)
            return true;
    return false;
}

bool rules_units_free(const struct gpu_state *g, unsigned start, unsigned size)
{
    for (int i = 0; i < EMU_MAX_GI; i++) {
        const struct gi_state *gi = &g->gi[i];
        if (gi->used && start < (unsigned)gi->start + gi->size && gi->start < start + size)
            return false;
    }
    return true;
}

/* admits_more returns the number of further instances that the profile's limit and the media engines allow, regardless
 * of free units. */
static unsigned admits_more(const struct gpu_state *g, int profile)
{
    const struct board *b = rules_board(g);
    const struct profile *p = &b->profiles[profile];
    unsigned count = 0, used[MEDIA_KINDS] = {0};
    for (int i = 0; i < EMU_MAX_GI; i++) {
        if (!g->gi[i].used)
            continue;
        count += g->gi[i].profile == profile;
        for (int m = 0; m < MEDIA_KINDS; m++)
            used[m] += rules_profile(g, &g->gi[i])->media[m];
    }
    unsigned more = count < p->limit ? p->limit - count : 0;
    for (int m = 0; m < MEDIA_KINDS; m++) {
        unsigned pool = 0;
        for (unsigned i = 0; i < b->nprofiles; i++)
            if (b->profiles[i].media[m] > pool)
                pool = b->profiles[i].media[m];
        if (p->media[m] && (pool - used[m]) / p->media[m] < more)
            more = (pool - used[m]) / p->media[m];
    }
    return more;
}

bool rules_admits(const struct gpu_state *g, int profile)
{
    return admits_more(g, profile) > 0;
}

unsigned rules_capacity(const struct gpu_state *g, int profile)
{
    const struct profile *p = &rules_board(g)->profiles[profile];
    unsigned room = 0, end = 0;
    /*
     * All placements of a profile have the same size, and the starts ascend, so the greedy choice yields the maximum.
     */
    for (unsigned i = 0; i < p->nstarts; i++)
        if (p->starts[i] >= end && rules_units_free(g, p->starts[i], p->size)) {
            room++;
            end = p->starts[i] + p->size;
        }
    unsigned more = admits_more(g, profile);
    return room < more ? room : more;
}

static unsigned free_starts(const struct gpu_state *g, unsigned taken_start, unsigned taken_size)
{
    const struct board *b = rules_board(g);
    unsigned n = 0;
    for (unsigned i = 0; i < b->nprofiles; i++) {
        const struct profile *p = &b->profiles[i];
        for (unsigned s = 0; s < p->nstarts; s++) {
            bool clear = p->starts[s] >= taken_start + taken_size || p->starts[s] + p->size <= taken_start;
            n += clear && rules_units_free(g, p->starts[s], p->size);
        }
    }
    return n;
}

int rules_driver_start(const struct gpu_state *g, int profile)
{
    const struct profile *p = &rules_board(g)->profiles[profile];
    int best = -1;
    unsigned most = 0;
    for (unsigned i = 0; i < p->nstarts; i++) {
        if (!rules_units_free(g, p->starts[i], p->size))
            continue;
        /* The last start of a 1g profile with twice the memory is used last (5, 3, 4 on a GH200, 5 on an H100). */
        if (best >= 0 && p->nvml == NVML_GPU_INSTANCE_PROFILE_1_SLICE_REV2 && i + 1 == p->nstarts)
            continue;
        unsigned left = free_starts(g, p->starts[i], p->size);
        if (best < 0 || left > most) {
            best = (int)p->starts[i];
            most = left;
        }
    }
    return best;
}

static const unsigned ci_sizes[NVML_COMPUTE_INSTANCE_PROFILE_COUNT] = {
    [NVML_COMPUTE_INSTANCE_PROFILE_1_SLICE] = 1,
    [NVML_COMPUTE_INSTANCE_PROFILE_2_SLICE] = 2,
    [NVML_COMPUTE_INSTANCE_PROFILE_3_SLICE] = 3,
    [NVML_COMPUTE_INSTANCE_PROFILE_4_SLICE] = 4,
    [NVML_COMPUTE_INSTANCE_PROFILE_7_SLICE] = 7,
    [NVML_COMPUTE_INSTANCE_PROFILE_1_SLICE_REV1] = 1,
};

/* sms_of_slices returns the SMs of the GPU model's profiles with this number of compute slices: the lowest number, or
 * the highest one. */
static unsigned sms_of_slices(const struct board *b, unsigned slices, bool highest)
{
    unsigned sms = 0;
    for (unsigned i = 0; i < b->nprofiles; i++)
        if (b->profiles[i].slices == slices && (!sms || (highest ? b->profiles[i].sms > sms : b->profiles[i].sms < sms)))
            sms = b->profiles[i].sms;
    return sms;
}

unsigned rules_ci_slices(const struct board *b, unsigned gi_profile, unsigned ci_profile)
{
    unsigned gi_slices = b->profiles[gi_profile].slices;
    if (ci_profile >= NVML_COMPUTE_INSTANCE_PROFILE_COUNT)
        return 0;
    unsigned slices = ci_sizes[ci_profile];
    /* NVIDIA's documentation lists only 1c, 2c and 4g for a 4g instance. */
    if (slices > gi_slices || (gi_slices == 4 && slices == 3))
        return 0;
    if (ci_profile == NVML_COMPUTE_INSTANCE_PROFILE_1_SLICE_REV1) {
        /* It needs the SMs of two units of the grid, so a 1g instance with one unit does not have it. */
        unsigned many = sms_of_slices(b, 1, true);
        if (many == sms_of_slices(b, 1, false) || many > b->profiles[gi_profile].sms)
            return 0;
    }
    return slices;
}

unsigned rules_ci_sms(const struct board *b, unsigned gi_profile, unsigned ci_profile)
{
    const struct profile *p = &b->profiles[gi_profile];
    unsigned slices = rules_ci_slices(b, gi_profile, ci_profile), sms;
    if (!slices)
        return 0;
    if (slices == p->slices && slices > 1)
        return p->sms;
    sms = sms_of_slices(b, slices, ci_profile == NVML_COMPUTE_INSTANCE_PROFILE_1_SLICE_REV1);
    return sms ? sms : p->sms * slices / p->slices;
}

unsigned rules_ci_full(const struct board *b, unsigned gi_profile)
{
    const struct profile *p = &b->profiles[gi_profile];
    for (unsigned i = 0; i < NVML_COMPUTE_INSTANCE_PROFILE_COUNT; i++)
        if (rules_ci_slices(b, gi_profile, i) == p->slices && rules_ci_sms(b, gi_profile, i) == p->sms)
            return i;
    return NVML_COMPUTE_INSTANCE_PROFILE_1_SLICE;
}

/* span returns the compute slices that an instance of a CI profile takes from its GPU instance. 1_SLICE_REV1 has more SMs
 * than one compute slice (nvidia-smi on an H100 shows room for one in a 2g instance, and for two of 1_SLICE). */
static unsigned span(unsigned ci_profile)
{
    return ci_profile == NVML_COMPUTE_INSTANCE_PROFILE_1_SLICE_REV1 ? 2 : ci_sizes[ci_profile];
}

unsigned rules_ci_starts(unsigned gi_slices, unsigned ci_profile, unsigned starts[8])
{
    unsigned size = span(ci_profile), step = size == 3 ? 4 : size, n = 0;
    for (unsigned s = 0; (s + size <= gi_slices || (s == 0 && ci_sizes[ci_profile] <= gi_slices)) && n < 8; s += step)
        starts[n++] = s;
    return n;
}

bool rules_ci_free(const struct gi_state *gi, unsigned start, unsigned ci_profile)
{
    for (int i = 0; i < EMU_MAX_CI; i++) {
        const struct ci_state *ci = &gi->ci[i];
        if (ci->used && start < (unsigned)ci->start + span(ci->profile) && ci->start < start + span(ci_profile))
            return false;
    }
    return true;
}

unsigned rules_ci_capacity(const struct gi_state *gi, unsigned gi_slices, unsigned ci_profile)
{
    unsigned starts[8], n = rules_ci_starts(gi_slices, ci_profile, starts), room = 0;
    for (unsigned i = 0; i < n; i++)
        room += rules_ci_free(gi, starts[i], ci_profile);
    return room;
}

/*
 * NVIDIA has published times for a GI together with its CI. An A100 needs 160 ms (1g) to 240 ms (7g) to create them,
 * and 200 to 220 ms to destroy them; an A30 needs 130 to 160 ms and 100 to 110 ms, respectively. How these times are
 * split between the GI and the CI is unpublished, so rules_latency_ms assigns half of the time to each. Other GPU
 * models use the A100's values, except that destroying a GI takes about 1 s on Hopper and later (comment in nvlib.go of
 * NVIDIA's k8s-dra-driver-gpu).
 *
 * NVIDIA has not published how long a reset or a MIG mode change takes. For a reset, rules_latency_ms uses the middle
 * of the 5 to 10 seconds that a GPU operator reports (factryze.ai/glossary/gpu-reset). The values for a MIG mode
 * change are assumptions.
 *
 * nvidia-smi takes 5.4 s on 8 B200 with 56 MIG devices (issue 2155 of NVIDIA/gpu-operator), in about 1,200 calls, so
 * rules_latency_ms uses 4 ms for each call that looks up a MIG device. That the calls for lists of instances, and for
 * instances by their ids, take as long is an assumption, as is the cost of a lookup by UUID in rules_walk_ms.
 */
#define LOOKUP_MS 4

unsigned rules_latency_ms(const struct gpu_state *g, int call, int profile)
{
    if (g->latency_ms[call])
        return g->latency_ms[call];
    if (g->realistic && call == CALL_RESET)
        return 7500;
    if (g->realistic && call == CALL_SET_MIG_MODE)
        return rules_board(g)->live_mode ? 1000 : 100;
    if (g->realistic && g->mig && (call == CALL_MIG_DEVICES || call == CALL_LIST_GI || call == CALL_LIST_CI))
        return LOOKUP_MS;
    if (!g->realistic || profile < 0)
        return 0;
    const struct board *b = rules_board(g);
    bool small = b->grid == 4;
    unsigned lo, hi;
    switch (call) {
    case CALL_CREATE_GI:
    case CALL_CREATE_CI:
        lo = small ? 65 : 80;
        hi = small ? 80 : 120;
        break;
    case CALL_DESTROY_GI:
    case CALL_DESTROY_CI:
        if (call == CALL_DESTROY_GI && b->live_mode)
            return 1000;
        lo = small ? 50 : 100;
        hi = small ? 55 : 110;
        break;
    default: return 0;
    }
    unsigned smallest = b->profiles[0].size;
    return lo + (hi - lo) * (b->profiles[profile].size - smallest) / (b->grid - smallest);
}

unsigned rules_walk_ms(const struct gpu_state *g)
{
    unsigned ms = 0;
    for (int i = 0; g->realistic && i < EMU_MAX_GI; i++)
        for (int c = 0; c < EMU_MAX_CI; c++)
            ms += g->gi[i].used && g->gi[i].ci[c].used ? LOOKUP_MS : 0;
    return ms;
}
