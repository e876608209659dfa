/* This file registers the process as a client of its devices, and changes the memory that it uses. */
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <unistd.h>

#include "cgroup.h"
#include "cuda.h"
#include "device.h"
#include "ops.h"
#include "quirk.h"
#include "rules.h"

static struct client me[EMU_MAX_GPUS]; /* the process's entries, one for each device */
static unsigned ndevices;
static bool charged; /* a cgroup is charged for the process's memory */

static void begin(struct txn *t, enum txn_mode mode)
{
    if (txn_begin(t, state_path(), mode) != TXN_OK)
        cuda_fail(EXIT_NO_DEVICE, "no CUDA driver: %s", t->error);
}

static void commit(struct txn *t)
{
    if (txn_commit(t) != 0)
        cuda_fail(EXIT_CUDA, "%s", t->error);
    txn_end(t);
}

static uint64_t total_bytes(const struct state *st, const struct client *c)
{
    const struct gpu_state *g = &st->gpu[c->gpu];
    return (uint64_t)(c->gi == EMU_WHOLE ? rules_board(g)->total_mib : rules_memory_mib(g, g->gi[c->gi].profile)) << 20;
}

/* managed_bytes returns the managed memory on a GPU, which does not prevent other allocations. */
static uint64_t managed_bytes(const struct state *st, unsigned gpu)
{
    uint64_t bytes = 0;
    for (int i = 0; i < EMU_MAX_CLIENTS && !quirk(QUIRK_MANAGED_STAYS); i++)
        if (st->client[i].managed && st->client[i].gpu == gpu && client_live(&st->client[i]))
            bytes += (uint64_t)st->client[i].memory_mib << 20;
    return bytes;
}

/* check_wish ends the program if the device does not match the options. */
static void check_wish(const struct state *st, const struct device *d, const struct wish *w)
{
    const struct gpu_state *g = &st->gpu[d->gpu];
    bool whole = d->gi == EMU_WHOLE;
    if (w->exclusive && ops_clients(st, d->gpu, whole ? -1 : (int)d->gi, -1))
        cuda_fail(EXIT_SHARED, "another process holds %s", getenv("CUDA_VISIBLE_DEVICES"));
    if (!w->expect)
        return;
    if (whole)
        cuda_fail(EXIT_UNEXPECTED, "GPU %u is a whole GPU, not a %s", d->gpu, w->expect);
    const char *profile = rules_name(g, g->gi[d->gi].profile);
    if (strcasecmp(w->expect, profile) != 0)
        cuda_fail(EXIT_UNEXPECTED, "%s is a %s, not a %s", getenv("CUDA_VISIBLE_DEVICES"), profile, w->expect);
}

/* enter adds the process to the clients of the device. */
static void enter(struct txn *t, const struct device *d, const struct wish *w, struct client *entry)
{
    struct client *slot = NULL;
    for (int i = 0; i < EMU_MAX_CLIENTS && !slot; i++)
        if (t->st->client[i].pid == 0)
            slot = &t->st->client[i];
    if (!slot)
        cuda_fail(EXIT_CUDA, "the emulator allows at most %d clients", EMU_MAX_CLIENTS);
    *entry = (struct client){.pid = (uint32_t)getpid(),
                             .start_time = process_start_time((uint32_t)getpid()),
                             .busy = (uint32_t)(w->util * EMU_BUSY + 0.5),
                             .gpu = (uint8_t)d->gpu,
                             .gi = (uint8_t)d->gi,
                             .ci = (uint8_t)d->ci,
                             .graphics = w->graphics,
                             .managed = w->managed};
    if (d->gi != EMU_WHOLE)
        entry->ci_serial = t->st->gpu[d->gpu].gi[d->gi].ci[d->ci].serial;
    if (entry->start_time == 0)
        cuda_fail(EXIT_NO_DEVICE, "no CUDA driver: the emulator uses /proc to identify processes, but this process cannot read it");
    *slot = *entry;
    struct event e = EVENT("process-start");
    ops_event_client(t->st, entry, &e);
    ops_log(t, &e, NVML_SUCCESS);
}

static void print_device(const struct state *st, const struct client *c)
{
    const struct gpu_state *g = &st->gpu[c->gpu];
    char uuid[UUID_TEXT];
    uint64_t total = total_bytes(st, c), used;
    if (c->gi == EMU_WHOLE) {
        if (charged)
            cgroup_show(st, c->gpu, &total, &used);
        ops_uuid_text("GPU-", g->uuid, uuid);
        printf("uuid=%s gpu=%u memory_mib=%u\n", uuid, c->gpu, (unsigned)(total >> 20));
        return;
    }
    const struct gi_state *gi = &g->gi[c->gi];
    ops_uuid_text("MIG-", gi->ci[c->ci].uuid, uuid);
    printf("uuid=%s gpu=%u gi=%u profile=%s start=%u memory_mib=%u\n", uuid, c->gpu, c->gi, rules_name(g, gi->profile), gi->start,
           (unsigned)(total >> 20));
}

void cuda_acquire(const struct wish *w)
{
    struct txn t;
    struct device devices[EMU_MAX_GPUS];
    begin(&t, TXN_WRITE);
    ndevices = cuda_visible(t.st, getenv("CUDA_VISIBLE_DEVICES"), devices);
    charged = !w->uncharged && !w->managed;
    if (w->expect_gpus)
        cuda_expect_gpus(t.st, devices, ndevices, w->expect_gpus);
    for (unsigned i = 0; i < ndevices; i++)
        check_wish(t.st, &devices[i], w);
    for (unsigned i = 0; i < ndevices; i++) {
        enter(&t, &devices[i], w, &me[i]);
        if (devices[i].gi == EMU_WHOLE)
            device_hold(t.st, devices[i].gpu);
    }
    if (txn_commit(&t) != 0)
        cuda_fail(EXIT_CUDA, "%s", t.error);
    for (unsigned i = 0; w->print && i < ndevices; i++)
        print_device(t.st, &me[i]);
    fflush(stdout);
    txn_end(&t);
}

static struct client *find_entry(struct txn *t, const struct client *entry)
{
    for (int i = 0; i < EMU_MAX_CLIENTS; i++) {
        struct client *c = &t->st->client[i];
        if (c->pid == entry->pid && c->start_time == entry->start_time && c->gpu == entry->gpu)
            return c;
    }
    return NULL;
}

static bool exists(const struct state *st, const struct client *entry)
{
    const struct gpu_state *g = &st->gpu[entry->gpu];
    if (entry->gi == EMU_WHOLE)
        return !g->lost && !g->mig;
    const struct gi_state *gi = &g->gi[entry->gi];
    return !g->lost && gi->used && gi->ci[entry->ci].serial == entry->ci_serial;
}

/*
 * leave unregisters the process as a client of all its devices. failed is the device that caused the event why, or -1;
 * for the others, the event is process-exit.
 */
static void leave(struct txn *t, const char *why, int failed, nvmlReturn_t rc)
{
    for (unsigned i = 0; i < ndevices; i++) {
        struct client *c = find_entry(t, &me[i]);
        struct event e = EVENT(failed < 0 || failed == (int)i ? why : "process-exit");
        ops_event_client(t->st, &me[i], &e);
        ops_log(t, &e, rc);
        if (c)
            *c = (struct client){0};
    }
    commit(t);
}

/* grow sets the process's memory on one device, within a transaction. */
static void grow(struct txn *t, unsigned i, unsigned mib)
{
    struct client *c = find_entry(t, &me[i]);
    bool whole = c->gi == EMU_WHOLE;
    uint64_t total = total_bytes(t->st, c), used = (uint64_t)ops_used_mib(t->st, c->gpu, whole ? -1 : c->gi) << 20, left;
    unsigned before = c->memory_mib;
    if (whole)
        used -= managed_bytes(t->st, c->gpu);
    left = used < total ? total - used : 0;
    if (whole && charged && (c->cgroup = (uint8_t)cgroup_join(t->st))) {
        uint64_t room = cgroup_room(t->st, c->gpu, c->cgroup);
        left = room < left ? room : left;
        cgroup_show(t->st, c->gpu, &total, &used);
    }
    if (mib > before && mib - before > left >> 20 && !c->managed) {
        leave(t, "process-oom", (int)i, NVML_ERROR_MEMORY);
        cuda_fail(EXIT_CUDA,
                  "CUDA out of memory. Tried to allocate %u MiB (%u MiB total capacity; %u MiB already allocated; %u MiB free)",
                  mib - before, (unsigned)(total >> 20), (unsigned)(used >> 20), (unsigned)(left >> 20));
    }
    c->memory_mib = mib;
}

void cuda_use(unsigned mib)
{
    struct txn t;
    bool same = mib == me[0].memory_mib;
    begin(&t, same ? TXN_READ : TXN_WRITE);
    for (unsigned i = 0; i < ndevices; i++) {
        if (exists(t.st, &me[i]) && find_entry(&t, &me[i]))
            continue;
        txn_end(&t);
        begin(&t, TXN_WRITE);
        leave(&t, "process-exit", -1, NVML_ERROR_GPU_IS_LOST);
        cuda_fail(EXIT_CUDA, "CUDA error: the device no longer exists");
    }
    if (same) {
        txn_end(&t);
        return;
    }
    for (unsigned i = 0; i < ndevices; i++)
        grow(&t, i, mib);
    for (unsigned i = 0; i < ndevices; i++)
        me[i].memory_mib = mib;
    commit(&t);
}

unsigned cuda_total(void)
{
    struct txn t;
    begin(&t, TXN_READ);
    uint64_t total = total_bytes(t.st, &me[0]), used;
    if (me[0].gi == EMU_WHOLE && charged)
        cgroup_show(t.st, me[0].gpu, &total, &used);
    txn_end(&t);
    return (unsigned)(total >> 20);
}

void cuda_leave(void)
{
    struct txn t;
    begin(&t, TXN_WRITE);
    leave(&t, "process-exit", -1, NVML_SUCCESS);
}
