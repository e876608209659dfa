/*
 * This file checks that a state is valid: every index is within its table, every string is terminated, and every
 * instance has a legal placement. The checksum cannot replace this check. It shows only that the state was written
 * completely, and because the state file has mode 0666, any user can write a state with a valid checksum.
 */
#include <string.h>

#include "quirk.h"
#include "rules.h"

#define MAX_LATENCY_MS 600000 /* the maximum of `nvml-emulator latency` */

static bool sane_ci(const struct board *b, unsigned profile, const struct ci_state *ci)
{
    const struct profile *p = &b->profiles[profile];
    unsigned starts[8];
    if (!ci->slices || rules_ci_slices(b, profile, ci->profile) != ci->slices)
        return false;
    unsigned n = rules_ci_starts(p->slices, ci->profile, starts);
    bool placed = false;
    for (unsigned i = 0; i < n; i++)
        placed |= starts[i] == ci->start;
    return placed;
}

static bool sane_gi(const struct gpu_state *g, unsigned id)
{
    const struct board *b = &boards[g->board];
    const struct gi_state *gi = &g->gi[id];
    if (gi->profile >= b->nprofiles)
        return false;
    const struct profile *p = &b->profiles[gi->profile];
    if (gi->size != p->size || !rules_legal_start(p, gi->start) ||
        (rules_gi_id(g, gi->start, gi->size) != id && !quirk(QUIRK_MOVING_IDS)))
        return false;
    for (const struct ci_state *ci = gi->ci; ci < gi->ci + EMU_MAX_CI; ci++) {
        if (!ci->used)
            continue;
        if (!sane_ci(b, gi->profile, ci))
            return false;
        for (const struct ci_state *other = gi->ci; other < ci; other++)
            if (other->used && ci->start < other->start + other->slices && other->start < ci->start + ci->slices)
                return false;
    }
    return true;
}

/*
 * sane_layout reports whether the layout is valid: if the GPU has instances, MIG mode must be on, and the rules must
 * allow the instances to be created one after the other.
 */
static bool sane_layout(const struct gpu_state *g)
{
    struct gpu_state before = *g;
    for (unsigned i = 0; i < EMU_MAX_GI; i++)
        before.gi[i].used = 0;
    for (unsigned i = 0; i < EMU_MAX_GI; i++) {
        if (!g->gi[i].used)
            continue;
        if (!g->mig || !sane_gi(g, i) || !rules_units_free(&before, g->gi[i].start, g->gi[i].size) || !rules_admits(&before, g->gi[i].profile))
            return false;
        before.gi[i].used = 1;
    }
    return true;
}

static bool sane_gpu(const struct gpu_state *g)
{
    if (g->board >= (unsigned)nboards || strncmp(g->board_name, boards[g->board].name, sizeof g->board_name) != 0)
        return false;
    for (unsigned i = 0; i < CALL_KINDS; i++)
        if (g->latency_ms[i] > MAX_LATENCY_MS)
            return false;
    if (g->mig > 1 || g->mig_pending > 1 || g->swapped > 1)
        return false;
    for (unsigned i = 0; i < BOARD_MAX_PROFILES; i++)
        if (!memchr(g->drift[i].name, '\0', sizeof g->drift[i].name))
            return false;
    return sane_layout(g);
}

/* sane_nvlinks reports whether each GPU's NVLinks lead to other GPUs of the machine and exist in both directions. */
static bool sane_nvlinks(const struct state *st)
{
    for (unsigned i = 0; i < st->ngpus; i++)
        for (unsigned k = 0; k < 16; k++)
            if (st->gpu[i].nvlink >> k & 1 && (k == i || k >= st->ngpus || !(st->gpu[k].nvlink >> i & 1)))
                return false;
    return true;
}

static bool sane_client(const struct state *st, const struct client *c)
{
    if (c->gpu >= st->ngpus || c->busy > EMU_BUSY || c->cgroup > EMU_MAX_CGROUPS)
        return false;
    if (c->gi == EMU_WHOLE)
        return c->ci == EMU_WHOLE && !st->gpu[c->gpu].mig;
    return c->gi < EMU_MAX_GI && c->ci < EMU_MAX_CI;
}

bool state_sane(const struct state *st)
{
    if (st->ngpus > EMU_MAX_GPUS || st->log_len > EMU_LOG_MAX || !memchr(st->dev_root, '\0', sizeof st->dev_root) ||
        !memchr(st->proc_root, '\0', sizeof st->proc_root) || !memchr(st->driver_version, '\0', sizeof st->driver_version))
        return false;
    for (unsigned i = 0; i < st->ngpus; i++)
        if (!sane_gpu(&st->gpu[i]))
            return false;
    for (unsigned i = 0; i < EMU_MAX_CGROUPS; i++)
        if (!memchr(st->cgroup[i].path, '\0', sizeof st->cgroup[i].path))
            return false;
    if (st->mode_reset > MODE_RESET_NEVER || st->memory_limits > LIMITS_DMEM || st->nvml_clients > 1 || !sane_nvlinks(st))
        return false;
    for (unsigned i = 0; i < EMU_MAX_CLIENTS; i++)
        if (st->client[i].pid && !sane_client(st, &st->client[i]))
            return false;
    for (unsigned i = 0; i < EMU_MAX_FAULTS; i++)
        if (st->fault[i].used && (st->fault[i].call >= CALL_KINDS || st->fault[i].crash > CRASH_AFTER))
            return false;
    return true;
}
