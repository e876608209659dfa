#include "ops.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#include "device.h"
#include "mode.h"
#include "proc.h"
#include "quirk.h"
#include "rules.h"

static const char *number(int n, char text[16])
{
    if (n < 0)
        return "-";
    snprintf(text, 16, "%d", n);
    return text;
}

void ops_log(struct txn *t, const struct event *e, nvmlReturn_t rc)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    char gpu[16], gi[16], ci[16], start[16], size[16], pid[16], uuid[UUID_TEXT] = "-";
    if (e->uuid)
        ops_uuid_text(e->gi >= 0 ? "MIG-" : "GPU-", e->uuid, uuid);
    const char *profile = "-", *mig = e->mig < 0 ? "-" : e->mig ? "on"
                                                                : "off";
    if (e->gpu >= 0 && e->profile >= 0)
        profile = rules_name(&t->st->gpu[e->gpu], e->profile);
    txn_log(t, "%lld%09ld %s gpu=%s gi=%s profile=%s start=%s size=%s uuid=%s rc=%s ci=%s pid=%s mig=%s\n", (long long)now.tv_sec,
            now.tv_nsec, e->name, number(e->gpu, gpu), number(e->gi, gi), profile, number(e->start, start),
            number(e->size, size), uuid, rc_name(rc), number(e->ci, ci), number(e->pid, pid), mig);
}

/* mix is the mixing step of splitmix64. The resulting UUIDs are predictable, which is acceptable for an emulator. */
static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

void ops_make_uuid(const struct state *st, uint64_t a, uint64_t b, uint8_t uuid[16])
{
    uint64_t hi = mix(mix(st->seed ^ mix(a)) ^ b), lo = mix(hi ^ 1);
    memcpy(uuid, &hi, 8);
    memcpy(uuid + 8, &lo, 8);
    uuid[6] = (uint8_t)((uuid[6] & 0x0f) | 0x50);
    uuid[8] = (uint8_t)((uuid[8] & 0x3f) | 0x80);
}

void ops_uuid_text(const char *prefix, const uint8_t u[16], char text[UUID_TEXT])
{
    int n = snprintf(text, UUID_TEXT, "%s", prefix);
    for (int i = 0; i < 16; i++)
        n += snprintf(text + n, (size_t)(UUID_TEXT - n), "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", u[i]);
}

bool ops_find_ci(const struct state *st, const char *uuid, unsigned *gpu, unsigned *gi, unsigned *ci)
{
    for (unsigned g = 0; g < st->ngpus; g++)
        for (unsigned i = 0; i < EMU_MAX_GI; i++)
            for (unsigned c = 0; c < EMU_MAX_CI; c++) {
                char text[UUID_TEXT];
                if (!st->gpu[g].gi[i].used || !st->gpu[g].gi[i].ci[c].used)
                    continue;
                ops_uuid_text("MIG-", st->gpu[g].gi[i].ci[c].uuid, text);
                if (strcasecmp(text, uuid) == 0) {
                    *gpu = g, *gi = i, *ci = c;
                    return true;
                }
            }
    return false;
}

int ops_find_gpu(const struct state *st, const char *uuid)
{
    int found = -1;
    size_t length = strlen(uuid);
    for (unsigned g = 0; g < st->ngpus; g++) {
        char text[UUID_TEXT];
        ops_uuid_text("GPU-", st->gpu[g].uuid, text);
        if (length <= 4 || strncasecmp(text, uuid, length) != 0)
            continue;
        if (found >= 0)
            return -1;
        found = (int)g;
    }
    return found;
}

unsigned ops_clients(const struct state *st, unsigned gpu, int gi, int ci)
{
    unsigned n = 0;
    for (int i = 0; i < EMU_MAX_CLIENTS; i++) {
        const struct client *c = &st->client[i];
        if (c->pid && c->gpu == gpu && (gi < 0 || c->gi == gi) && (ci < 0 || c->ci == ci))
            n += client_live(c);
    }
    return n;
}

unsigned ops_used_mib(const struct state *st, unsigned gpu, int gi)
{
    unsigned mib = 0;
    for (int i = 0; i < EMU_MAX_CLIENTS; i++) {
        const struct client *c = &st->client[i];
        if (c->pid && c->gpu == gpu && (gi < 0 || c->gi == gi) && client_live(c))
            mib += c->memory_mib;
    }
    return mib;
}

unsigned ops_busy(const struct state *st, unsigned gpu, unsigned gi)
{
    unsigned busy = 0;
    for (int i = 0; i < EMU_MAX_CLIENTS; i++) {
        const struct client *c = &st->client[i];
        if (c->pid && c->gpu == gpu && c->gi == gi && client_live(c))
            busy += c->busy;
    }
    return busy < EMU_BUSY ? busy : EMU_BUSY;
}

void ops_event_client(const struct state *st, const struct client *c, struct event *e)
{
    const struct gpu_state *g = &st->gpu[c->gpu];
    e->gpu = c->gpu, e->pid = (int)c->pid;
    if (c->gi == EMU_WHOLE) {
        e->uuid = g->uuid;
        return;
    }
    const struct gi_state *gi = &g->gi[c->gi];
    e->gi = c->gi, e->ci = c->ci;
    if (gi->used && gi->ci[c->ci].serial == c->ci_serial)
        e->profile = gi->profile, e->start = gi->start, e->size = gi->size, e->uuid = gi->ci[c->ci].uuid;
}

void ops_reap(struct txn *t)
{
    for (int i = 0; i < EMU_MAX_CLIENTS; i++) {
        struct client *c = &t->st->client[i];
        if (c->pid == 0 || client_live(c))
            continue;
        struct event e = EVENT("process-gone");
        ops_event_client(t->st, c, &e);
        ops_log(t, &e, NVML_SUCCESS);
        *c = (struct client){0};
    }
}

/*
 * doom schedules a capability's access file for removal after the commit. Because access files are created before the
 * commit and removed after it, every instance has its files even if a process is killed during a change. At worst, a
 * killed process leaves a surplus file, which will be replaced the next time the instance is created. As with the real
 * driver, the device files of destroyed instances remain.
 */
static void doom(struct txn *t, unsigned gpu, unsigned gi, int ci)
{
    t->doomed[t->ndoomed++] = (uint16_t)rules_cap_minor(gpu, gi, ci);
}

static nvmlReturn_t no_device_file(void)
{
    fprintf(stderr, "nvml-emulator: couldn't create a device file: %s\n", strerror(errno));
    return NVML_ERROR_OPERATING_SYSTEM;
}

nvmlReturn_t ops_create_gi(struct txn *t, unsigned gpu, int profile, int start, unsigned *id)
{
    struct gpu_state *g = &t->st->gpu[gpu];
    const struct board *b = rules_board(g);
    if (!g->mig)
        return NVML_ERROR_NOT_SUPPORTED;
    if (profile < 0)
        return NVML_ERROR_INVALID_ARGUMENT;
    const struct profile *p = &b->profiles[profile];
    if (start >= 0 && !rules_legal_start(p, (unsigned)start))
        return NVML_ERROR_INVALID_ARGUMENT;
    if (!rules_admits(g, profile))
        return NVML_ERROR_INSUFFICIENT_RESOURCES;
    if (start < 0)
        start = rules_driver_start(g, profile);
    if (start < 0 || !rules_units_free(g, (unsigned)start, p->size))
        return NVML_ERROR_INSUFFICIENT_RESOURCES;
    /* The first instance of a GPU cannot be created while any process has the GPU open (shown with a profiler on an H100). */
    struct mode_users users;
    bool first = true;
    for (int i = 0; i < EMU_MAX_GI; i++)
        first &= !g->gi[i].used;
    if (first && mode_users(t->st, gpu, (uint32_t)getpid(), &users))
        return NVML_ERROR_IN_USE;
    *id = rules_gi_id(g, (unsigned)start, p->size);
    unsigned moved = rules_gi_id(g, ((unsigned)start + b->grid / 2) % b->grid, p->size);
    if (quirk(QUIRK_MOVING_IDS) && p->size < b->grid && !g->gi[moved].used && (t->st->serial >> 1 & 1 || g->gi[*id].used))
        *id = moved;
    if (device_add_cap(t->st, gpu, *id, -1) != 0 || proc_add_cap(t->st, gpu, *id, -1) != 0)
        return no_device_file();
    g->gi[*id] = (struct gi_state){
        .serial = ++t->st->serial, .used = 1, .profile = (uint8_t)profile, .start = (uint8_t)start, .size = (uint8_t)p->size};
    return NVML_SUCCESS;
}

nvmlReturn_t ops_destroy_gi(struct txn *t, unsigned gpu, unsigned id)
{
    struct gi_state *gi = &t->st->gpu[gpu].gi[id];
    if (gi->held || ops_clients(t->st, gpu, (int)id, -1))
        return NVML_ERROR_IN_USE;
    for (int c = 0; c < EMU_MAX_CI; c++)
        if (gi->ci[c].used)
            return NVML_ERROR_IN_USE;
    *gi = (struct gi_state){0};
    doom(t, gpu, id, -1);
    return NVML_SUCCESS;
}

/* name_ci gives a compute instance its UUID. */
static void name_ci(struct state *st, unsigned gpu, unsigned gi, unsigned id)
{
    struct ci_state *ci = &st->gpu[gpu].gi[gi].ci[id];
    uint64_t place = ((uint64_t)gpu << 16) | (gi << 8) | id;
    ops_make_uuid(st, 1 + place, st->repeat_uuids ? 0 : ci->serial, ci->uuid);
}

nvmlReturn_t ops_create_ci(struct txn *t, unsigned gpu, unsigned gi_id, unsigned profile, int start, unsigned *id)
{
    struct gpu_state *g = &t->st->gpu[gpu];
    struct gi_state *gi = &g->gi[gi_id];
    unsigned slices = rules_ci_slices(rules_board(g), gi->profile, profile);
    unsigned starts[8], n = rules_ci_starts(rules_profile(g, gi)->slices, profile, starts), i;
    for (i = 0; i < n; i++)
        if (start < 0 ? rules_ci_free(gi, starts[i], profile) : starts[i] == (unsigned)start)
            break;
    if (i == n)
        return start < 0 ? NVML_ERROR_INSUFFICIENT_RESOURCES : NVML_ERROR_INVALID_ARGUMENT;
    if (!rules_ci_free(gi, starts[i], profile))
        return NVML_ERROR_INSUFFICIENT_RESOURCES;
    for (*id = quirk(QUIRK_CI_IDS); *id < EMU_MAX_CI && gi->ci[*id].used; ++*id)
        ;
    if (*id == EMU_MAX_CI)
        return NVML_ERROR_INSUFFICIENT_RESOURCES;
    if (device_add_cap(t->st, gpu, gi_id, (int)*id) != 0 || proc_add_cap(t->st, gpu, gi_id, (int)*id) != 0)
        return no_device_file();
    struct ci_state *ci = &gi->ci[*id];
    *ci = (struct ci_state){
        .serial = ++t->st->serial, .used = 1, .slices = (uint8_t)slices, .start = (uint8_t)starts[i], .profile = (uint8_t)profile};
    name_ci(t->st, gpu, gi_id, *id);
    return NVML_SUCCESS;
}

nvmlReturn_t ops_destroy_ci(struct txn *t, unsigned gpu, unsigned gi, unsigned id)
{
    bool busy = t->st->gpu[gpu].gi[gi].held || ops_clients(t->st, gpu, (int)gi, (int)id);
    if (busy && !quirk(QUIRK_DESTROY_BUSY))
        return NVML_ERROR_IN_USE;
    t->st->gpu[gpu].gi[gi].ci[id] = (struct ci_state){0};
    doom(t, gpu, gi, (int)id);
    return NVML_SUCCESS;
}

void ops_wipe(struct txn *t, unsigned gpu)
{
    for (unsigned i = 0; i < EMU_MAX_GI; i++) {
        struct gi_state *gi = &t->st->gpu[gpu].gi[i];
        if (!gi->used)
            continue;
        for (unsigned c = 0; c < EMU_MAX_CI; c++)
            if (gi->ci[c].used)
                doom(t, gpu, i, (int)c);
        doom(t, gpu, i, -1);
        *gi = (struct gi_state){0};
    }
}

void ops_restore(struct txn *t, unsigned gpu)
{
    for (unsigned i = 0; i < EMU_MAX_GI; i++)
        for (unsigned c = 0; c < EMU_MAX_CI; c++) {
            struct ci_state *ci = &t->st->gpu[gpu].gi[i].ci[c];
            if (!ci->used)
                continue;
            ci->serial = ++t->st->serial;
            name_ci(t->st, gpu, i, c);
        }
}

void ops_raise_xid(struct gpu_state *g, unsigned xid, unsigned gi)
{
    g->xid_seq++;
    g->xid = xid;
    g->xid_gi = gi;
}

void ops_lose(struct gpu_state *g)
{
    if (!g->lost)
        ops_raise_xid(g, 79, 0xFFFFFFFF); /* Xid 79: "GPU has fallen off the bus" */
    g->lost = 1;
}
