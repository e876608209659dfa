/*
 * This file implements the subcommands create, destroy, hold, unhold, lose, find, xid, mig-mode and reset, which
 * emulate actions of an administrator or a monitoring program, and hardware events. The file also implements lock.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ctl.h"

static int end_with(struct txn *t, struct event *e, nvmlReturn_t rc, const char *what)
{
    ops_log(t, e, rc);
    int status = ctl_done(t);
    if (rc == NVML_SUCCESS)
        return status;
    fprintf(stderr, "nvml-emulator: couldn't %s: %s\n", what, rc_text(rc));
    return EXIT_REFUSED;
}

int cmd_create(int argc, char **argv)
{
    bool with_ci = true;
    if (argc > 1 && strcmp(argv[argc - 1], "--no-ci") == 0) {
        with_ci = false;
        argc--;
    }
    if (argc < 3 || argc > 4)
        ctl_fail(EXIT_USAGE, "create GPU PROFILE [START] [--no-ci]");
    struct txn t;
    ctl_begin(&t, TXN_WRITE);
    unsigned gpu = ctl_gpu(&t, argv[1]), gi, ci;
    struct gpu_state *g = &t.st->gpu[gpu];
    struct event e = EVENT("create-gi");
    int profile = rules_profile_by_name(g, argv[2]);
    if (profile < 0)
        ctl_fail(EXIT_REFUSED, "GPU %u (%s) has no profile %s", gpu, g->board_name, argv[2]);
    int start = argc == 4 ? (int)ctl_number(argv[3], "start", rules_board(g)->grid - 1) : -1;
    e.gpu = (int)gpu, e.profile = profile, e.start = start, e.size = (int)rules_board(g)->profiles[profile].size;
    nvmlReturn_t rc = ops_create_gi(&t, gpu, profile, start, &gi);
    if (rc != NVML_SUCCESS)
        return end_with(&t, &e, rc, "create the GPU instance");
    e.gi = (int)gi, e.start = g->gi[gi].start, e.size = g->gi[gi].size;
    ops_log(&t, &e, rc);
    char uuid[UUID_TEXT] = "-";
    if (with_ci) {
        e.name = "create-ci";
        rc = ops_create_ci(&t, gpu, gi, rules_board(g)->profiles[profile].slices, -1, &ci);
        if (rc != NVML_SUCCESS)
            return end_with(&t, &e, rc, "create the compute instance");
        e.ci = (int)ci, e.uuid = g->gi[gi].ci[ci].uuid;
        ops_uuid_text("MIG-", e.uuid, uuid);
        ops_log(&t, &e, rc);
    }
    printf("gi=%u start=%u uuid=%s\n", gi, g->gi[gi].start, uuid);
    return ctl_done(&t);
}

int cmd_destroy(int argc, char **argv)
{
    if (argc != 3)
        ctl_fail(EXIT_USAGE, "destroy GPU GI");
    struct txn t;
    ctl_begin(&t, TXN_WRITE);
    unsigned gpu = ctl_gpu(&t, argv[1]), gi = ctl_gi(&t, gpu, argv[2]);
    struct gi_state was = t.st->gpu[gpu].gi[gi];
    struct event e = EVENT("destroy-ci");
    e.gpu = (int)gpu, e.gi = (int)gi, e.profile = was.profile, e.start = was.start, e.size = was.size;
    for (unsigned ci = 0; ci < EMU_MAX_CI; ci++) {
        if (!was.ci[ci].used)
            continue;
        e.ci = (int)ci, e.uuid = was.ci[ci].uuid;
        nvmlReturn_t rc = ops_destroy_ci(&t, gpu, gi, ci);
        if (rc != NVML_SUCCESS)
            return end_with(&t, &e, rc, "destroy the compute instance");
        ops_log(&t, &e, rc);
    }
    e.name = "destroy-gi", e.ci = -1, e.uuid = NULL;
    return end_with(&t, &e, ops_destroy_gi(&t, gpu, gi), "destroy the GPU instance");
}

int cmd_hold(int argc, char **argv)
{
    if (argc != 3)
        ctl_fail(EXIT_USAGE, "%s GPU GI", argv[0]);
    struct txn t;
    ctl_begin(&t, TXN_WRITE);
    unsigned gpu = ctl_gpu(&t, argv[1]), gi = ctl_gi(&t, gpu, argv[2]);
    t.st->gpu[gpu].gi[gi].held = strcmp(argv[0], "hold") == 0;
    struct event e = EVENT(argv[0]);
    e.gpu = (int)gpu, e.gi = (int)gi;
    return end_with(&t, &e, NVML_SUCCESS, argv[0]);
}

static void raise_xid(struct gpu_state *g, unsigned xid, unsigned gi)
{
    g->xid_seq++;
    g->xid = xid;
    g->xid_gi = gi;
}

int cmd_lose(int argc, char **argv)
{
    if (argc != 2)
        ctl_fail(EXIT_USAGE, "%s GPU", argv[0]);
    struct txn t;
    ctl_begin(&t, TXN_WRITE);
    unsigned gpu = ctl_gpu(&t, argv[1]);
    struct gpu_state *g = &t.st->gpu[gpu];
    bool lose = strcmp(argv[0], "lose") == 0;
    if (lose && !g->lost)
        raise_xid(g, 79, 0xFFFFFFFF); /* Xid 79: "GPU has fallen off the bus" */
    g->lost = lose;
    struct event e = EVENT(argv[0]);
    e.gpu = (int)gpu;
    return end_with(&t, &e, NVML_SUCCESS, argv[0]);
}

int cmd_xid(int argc, char **argv)
{
    if (argc < 3 || argc > 4)
        ctl_fail(EXIT_USAGE, "xid GPU CODE [GI]");
    struct txn t;
    ctl_begin(&t, TXN_WRITE);
    unsigned gpu = ctl_gpu(&t, argv[1]);
    unsigned gi = argc == 4 ? ctl_gi(&t, gpu, argv[3]) : 0xFFFFFFFF;
    raise_xid(&t.st->gpu[gpu], ctl_number(argv[2], "Xid", 999), gi);
    return ctl_done(&t);
}

int cmd_mig_mode(int argc, char **argv)
{
    if (argc != 3 || (strcmp(argv[2], "on") != 0 && strcmp(argv[2], "off") != 0))
        ctl_fail(EXIT_USAGE, "mig-mode needs GPU, and on or off");
    struct txn t;
    ctl_begin(&t, TXN_WRITE);
    unsigned gpu = ctl_gpu(&t, argv[1]);
    struct gpu_state *g = &t.st->gpu[gpu];
    struct event e = EVENT("mig-mode");
    e.gpu = (int)gpu;
    g->mig_pending = strcmp(argv[2], "on") == 0;
    if (g->mig_pending == g->mig)
        return end_with(&t, &e, NVML_SUCCESS, argv[0]);
    if (!rules_board(g)->live_mode) {
        printf("the change is pending until `nvml-emulator reset %u`\n", gpu);
        return end_with(&t, &e, NVML_SUCCESS, argv[0]);
    }
    for (int i = 0; i < EMU_MAX_GI; i++)
        if (g->gi[i].used)
            return end_with(&t, &e, NVML_ERROR_IN_USE, "change the mode of a GPU that has instances");
    g->mig = g->mig_pending;
    return end_with(&t, &e, NVML_SUCCESS, argv[0]);
}

int cmd_reset(int argc, char **argv)
{
    if (argc != 2)
        ctl_fail(EXIT_USAGE, "reset GPU");
    struct txn t;
    ctl_begin(&t, TXN_WRITE);
    unsigned gpu = ctl_gpu(&t, argv[1]);
    struct gpu_state *g = &t.st->gpu[gpu];
    struct event e = EVENT("reset");
    e.gpu = (int)gpu;
    if (ops_clients(t.st, gpu, -1, -1))
        return end_with(&t, &e, NVML_ERROR_IN_USE, "reset the GPU");
    ops_wipe(&t, gpu);
    g->mig = g->mig_pending;
    g->lost = 0;
    return end_with(&t, &e, NVML_SUCCESS, argv[0]);
}

int cmd_lock(int argc, char **argv)
{
    if (argc != 2)
        ctl_fail(EXIT_USAGE, "lock SECONDS");
    struct txn t;
    ctl_begin(&t, TXN_WRITE);
    printf("locked\n");
    fflush(stdout);
    sleep(ctl_number(argv[1], "seconds", 86400));
    txn_end(&t);
    return EXIT_OK;
}
