/*
 * This file implements the hold, limit, lose, xid, mig-mode, reset and reboot subcommands, which emulate hardware events and
 * what an administrator or a monitoring program does to a GPU.
 */
#include <stdio.h>
#include <string.h>

#include "cgroup.h"
#include "ctl.h"
#include "mode.h"

int cmd_hold(int argc, char **argv)
{
    if (argc < 2 || argc > 3)
        ctl_fail(EXIT_USAGE, "%s GPU [GI]", argv[0]);
    struct txn t;
    ctl_begin(&t, TXN_WRITE);
    bool hold = strcmp(argv[0], "hold") == 0;
    struct event e = EVENT(argv[0]);
    unsigned gpu = ctl_gpu(&t, argv[1]);
    e.gpu = (int)gpu;
    if (argc == 3) {
        e.gi = (int)ctl_gi(&t, gpu, argv[2]);
        t.st->gpu[gpu].gi[e.gi].held = hold;
    } else {
        t.st->gpu[gpu].held = hold;
    }
    return ctl_end_with(&t, &e, NVML_SUCCESS, argv[0]);
}

int cmd_limit(int argc, char **argv)
{
    if (argc != 4)
        ctl_fail(EXIT_USAGE, "limit GPU CGROUP MIB|none");
    struct txn t;
    ctl_begin(&t, TXN_WRITE);
    struct event e = EVENT("set-limits");
    unsigned gpu = ctl_gpu(&t, argv[1]);
    e.gpu = (int)gpu;
    uint64_t bytes = UINT64_MAX;
    if (strcmp(argv[3], "none") != 0)
        bytes = (uint64_t)ctl_number(argv[3], "MIB", 10000000) << 20;
    return ctl_end_with(&t, &e, cgroup_set(t.st, gpu, argv[2], bytes), "set the limit");
}

int cmd_lose(int argc, char **argv)
{
    if (argc != 2)
        ctl_fail(EXIT_USAGE, "%s GPU", argv[0]);
    struct txn t;
    ctl_begin(&t, TXN_WRITE);
    unsigned gpu = ctl_gpu(&t, argv[1]);
    struct gpu_state *g = &t.st->gpu[gpu];
    if (strcmp(argv[0], "lose") == 0)
        ops_lose(g);
    else
        g->lost = 0;
    struct event e = EVENT(argv[0]);
    e.gpu = (int)gpu;
    return ctl_end_with(&t, &e, NVML_SUCCESS, argv[0]);
}

int cmd_xid(int argc, char **argv)
{
    if (argc < 3 || argc > 4)
        ctl_fail(EXIT_USAGE, "xid GPU CODE [GI]");
    struct txn t;
    ctl_begin(&t, TXN_WRITE);
    unsigned gpu = ctl_gpu(&t, argv[1]);
    unsigned gi = argc == 4 ? ctl_gi(&t, gpu, argv[3]) : 0xFFFFFFFF;
    ops_raise_xid(&t.st->gpu[gpu], ctl_number(argv[2], "Xid", 999), gi);
    return ctl_done(&t);
}

int cmd_mig_mode(int argc, char **argv)
{
    if (argc != 3 || (strcmp(argv[2], "on") != 0 && strcmp(argv[2], "off") != 0))
        ctl_fail(EXIT_USAGE, "mig-mode needs GPU, and on or off");
    struct txn t;
    struct mode_users users;
    ctl_begin(&t, TXN_WRITE);
    unsigned gpu = ctl_gpu(&t, argv[1]);
    struct gpu_state *g = &t.st->gpu[gpu];
    struct event e = EVENT("mig-mode");
    e.gpu = (int)gpu, e.mig = g->mig;
    if (!rules_board(g)->nprofiles)
        return ctl_end_with(&t, &e, NVML_ERROR_NOT_SUPPORTED, "change the MIG mode");
    g->mig_pending = strcmp(argv[2], "on") == 0;
    if (g->mig_pending == g->mig)
        return ctl_end_with(&t, &e, NVML_SUCCESS, argv[0]);
    if (!rules_board(g)->live_mode) {
        printf("pending until `nvml-emulator reset %u`\n", gpu);
        return ctl_end_with(&t, &e, NVML_SUCCESS, argv[0]);
    }
    for (int i = 0; i < EMU_MAX_GI; i++)
        if (g->gi[i].used)
            return ctl_end_with(&t, &e, NVML_ERROR_IN_USE, "change the mode of a GPU that has instances");
    if (mode_users(t.st, gpu, 0, &users))
        return ctl_end_with(&t, &e, NVML_ERROR_IN_USE, "change the mode of a GPU that has clients");
    mode_apply(&t, gpu);
    e.mig = g->mig;
    return ctl_end_with(&t, &e, NVML_SUCCESS, argv[0]);
}

int cmd_reset(int argc, char **argv)
{
    if (argc != 2)
        ctl_fail(EXIT_USAGE, "reset GPU");
    struct txn t;
    ctl_begin(&t, TXN_WRITE);
    unsigned gpu = ctl_gpu(&t, argv[1]);
    struct event e = EVENT("reset");
    nvmlReturn_t rc = mode_reset(&t, gpu, 0);
    if (rc == NVML_SUCCESS)
        t.st->gpu[gpu].lost = 0;
    e.gpu = (int)gpu, e.mig = t.st->gpu[gpu].mig;
    return ctl_end_with(&t, &e, rc, "reset the GPU");
}

int cmd_reboot(int argc, char **argv)
{
    (void)argv;
    if (argc != 1)
        ctl_fail(EXIT_USAGE, "reboot takes no arguments");
    struct txn t;
    ctl_begin(&t, TXN_WRITE);
    for (unsigned gpu = 0; gpu < t.st->ngpus; gpu++)
        if (ops_clients(t.st, gpu, -1, -1))
            ctl_fail(EXIT_REFUSED, "processes use GPU %u; end them first", gpu);
    memset(t.st->cgroup, 0, sizeof t.st->cgroup);
    for (unsigned gpu = 0; gpu < t.st->ngpus; gpu++) {
        struct event e = EVENT("reboot");
        mode_reboot(&t, gpu);
        e.gpu = (int)gpu, e.mig = t.st->gpu[gpu].mig;
        ops_log(&t, &e, NVML_SUCCESS);
        if (txn_commit(&t) != 0)
            ctl_fail(EXIT_STATE, "%s", t.error);
    }
    return ctl_done(&t);
}
