/*
 * This file implements the check subcommand, which reports violations of the rules that the library enforces, as well
 * as differences between the device files and the state.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "ctl.h"
#include "device.h"

static unsigned complaints;

static void complain(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

static void complain(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    putchar('\n');
    complaints++;
}

static void check_file(const struct state *st, unsigned gpu, unsigned gi, int ci, bool wanted)
{
    char path[512];
    struct stat sb;
    if (!st->dev_root[0] || st->keep_device_files)
        return;
    device_cap_path(st, gpu, gi, ci, path, sizeof path);
    bool there = lstat(path, &sb) == 0;
    /* As with the real driver, the files of destroyed instances remain. */
    if (!there && wanted)
        complain("%s is missing", path);
    else if (there && (!S_ISCHR(sb.st_mode) || sb.st_rdev != makedev(EMU_MAJOR, rules_cap_minor(gpu, gi, ci))))
        complain("%s is not the expected device", path);
}

static void check_gpu(const struct state *st, unsigned gpu)
{
    const struct gpu_state *g = &st->gpu[gpu];
    const struct board *b = rules_board(g);
    unsigned count[BOARD_MAX_PROFILES] = {0}, media[MEDIA_KINDS] = {0};
    int owner[16];
    memset(owner, -1, sizeof owner);
    for (unsigned i = 0; i < EMU_MAX_GI; i++) {
        const struct gi_state *gi = &g->gi[i];
        check_file(st, gpu, i, -1, gi->used);
        for (int c = 0; c < EMU_MAX_CI; c++) {
            check_file(st, gpu, i, c, gi->used && gi->ci[c].used);
            if (gi->ci[c].used && !gi->used)
                complain("GPU %u: compute instance %d belongs to GI %u, which does not exist", gpu, c, i);
        }
        if (!gi->used)
            continue;
        if (!g->mig)
            complain("GPU %u GI %u: MIG mode is off", gpu, i);
        if (gi->profile >= b->nprofiles) {
            complain("GPU %u GI %u: the GPU model does not have the instance's profile", gpu, i);
            continue;
        }
        const struct profile *p = &b->profiles[gi->profile];
        if (gi->size != p->size || !rules_legal_start(p, gi->start) || rules_gi_id(g, gi->start, gi->size) != i)
            complain("GPU %u GI %u: an instance of %s cannot start at unit %u with %u units", gpu, i, p->name, gi->start, gi->size);
        for (unsigned u = gi->start; u < (unsigned)gi->start + gi->size && u < b->grid; u++) {
            if (owner[u] >= 0)
                complain("GPU %u: GI %d and GI %u overlap at unit %u", gpu, owner[u], i, u);
            owner[u] = (int)i;
        }
        if (++count[gi->profile] > p->limit)
            complain("GPU %u has more than %u instances of %s", gpu, p->limit, p->name);
        for (int m = 0; m < MEDIA_KINDS; m++)
            media[m] += p->media[m];
        for (int c = 0; c < EMU_MAX_CI; c++)
            for (int d = c + 1; d < EMU_MAX_CI; d++)
                if (gi->ci[c].used && gi->ci[d].used && gi->ci[c].start < gi->ci[d].start + gi->ci[d].slices &&
                    gi->ci[d].start < gi->ci[c].start + gi->ci[c].slices)
                    complain("GPU %u GI %u: compute instances %d and %d overlap", gpu, i, c, d);
    }
    for (int m = 0; m < MEDIA_KINDS; m++) {
        unsigned pool = 0;
        for (unsigned i = 0; i < b->nprofiles; i++)
            if (b->profiles[i].media[m] > pool)
                pool = b->profiles[i].media[m];
        if (media[m] > pool)
            complain("GPU %u: %u media engines of kind %d are in use, but the GPU has %u", gpu, media[m], m, pool);
    }
}

int cmd_check(int argc, char **argv)
{
    (void)argv;
    if (argc != 1)
        ctl_fail(EXIT_USAGE, "check takes no arguments");
    struct txn t;
    ctl_begin(&t, TXN_READ);
    const struct state *st = t.st;
    for (unsigned i = 0; i < st->ngpus; i++)
        check_gpu(st, i);
    for (int i = 0; i < EMU_MAX_CLIENTS; i++) {
        const struct client *c = &st->client[i];
        if (!client_live(c))
            continue;
        if (c->gi == EMU_WHOLE) {
            if (st->gpu[c->gpu].mig)
                complain("process %u uses the whole GPU %u, but MIG mode is on", c->pid, c->gpu);
            continue;
        }
        const struct gi_state *gi = &st->gpu[c->gpu].gi[c->gi];
        if (!gi->used || !gi->ci[c->ci].used || gi->ci[c->ci].serial != c->ci_serial)
            complain("process %u uses GPU %u GI %u CI %u, which no longer exists", c->pid, c->gpu, c->gi, c->ci);
    }
    txn_end(&t);
    return complaints ? EXIT_REFUSED : EXIT_OK;
}
