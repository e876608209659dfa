/*
 * This file implements the create and destroy subcommands, which emulate an administrator's actions, and the lock
 * subcommand.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ctl.h"

int ctl_end_with(struct txn *t, struct event *e, nvmlReturn_t rc, const char *what)
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
        return ctl_end_with(&t, &e, rc, "create the GPU instance");
    e.gi = (int)gi, e.start = g->gi[gi].start, e.size = g->gi[gi].size;
    ops_log(&t, &e, rc);
    char uuid[UUID_TEXT] = "-";
    if (with_ci) {
        e.name = "create-ci";
        rc = ops_create_ci(&t, gpu, gi, rules_ci_full(rules_board(g), (unsigned)profile), -1, &ci);
        if (rc != NVML_SUCCESS)
            return ctl_end_with(&t, &e, rc, "create the compute instance");
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
            return ctl_end_with(&t, &e, rc, "destroy the compute instance");
        ops_log(&t, &e, rc);
    }
    e.name = "destroy-gi", e.ci = -1, e.uuid = NULL;
    return ctl_end_with(&t, &e, ops_destroy_gi(&t, gpu, gi), "destroy the GPU instance");
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
