/* This file implements the latency, fault, drift and uuid subcommands, which configure the machine's faults. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl.h"

int ctl_board(const char *name)
{
    for (int i = 0; i < nboards; i++)
        if (strcmp(boards[i].name, name) == 0)
            return i;
    ctl_fail(EXIT_USAGE, "unknown board %s; see nvml-emulator init --help", name);
}

static int call_or_fail(const char *name)
{
    int call = call_by_name(name);
    if (call < 0)
        ctl_fail(EXIT_USAGE, "unknown call %s; see nvml-emulator latency --help", name);
    return call;
}

/* selected reports whether --board or --gpu selects the GPU. Without these options, every GPU is selected. */
static bool selected(const struct txn *t, unsigned gpu, int board, const char *number)
{
    if (board >= 0)
        return t->st->gpu[gpu].board == (unsigned)board;
    return !number || ctl_gpu(t, number) == gpu;
}

int cmd_latency(int argc, char **argv)
{
    static const struct option options[] = {{"board", 1, 0, 'b'}, {"gpu", 1, 0, 'g'}, {"call", 1, 0, 'c'}, {0}};
    int board = -1, call = -1;
    const char *gpu = NULL;
    for (int o; (o = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (o == 'b')
            board = ctl_board(optarg);
        else if (o == 'g')
            gpu = optarg;
        else if (o == 'c')
            call = call_or_fail(optarg);
        else
            return EXIT_USAGE;
    }
    if (optind != argc - 1)
        ctl_fail(EXIT_USAGE, "latency needs milliseconds, realistic or off; see nvml-emulator latency --help");
    const char *what = argv[optind];
    bool realistic = strcmp(what, "realistic") == 0, off = strcmp(what, "off") == 0;
    unsigned ms = call >= 0 ? ctl_number(what, "milliseconds", 600000) : 0;
    if (call < 0 && !realistic && !off)
        ctl_fail(EXIT_USAGE, "latency must be realistic, off, or a number of milliseconds with --call, not %s", what);
    struct txn t;
    ctl_begin(&t, TXN_WRITE);
    for (unsigned i = 0; i < t.st->ngpus; i++) {
        struct gpu_state *g = &t.st->gpu[i];
        if (!selected(&t, i, board, gpu))
            continue;
        if (call >= 0) {
            g->latency_ms[call] = ms;
            continue;
        }
        g->realistic = realistic;
        if (off)
            memset(g->latency_ms, 0, sizeof g->latency_ms);
    }
    return ctl_done(&t);
}

static bool changes_state(int call)
{
    return call == CALL_CREATE_GI || call == CALL_DESTROY_GI || call == CALL_CREATE_CI || call == CALL_DESTROY_CI ||
           call == CALL_SET_MIG_MODE || call == CALL_SET_LIMITS || call == CALL_RESET;
}

static void fault_list(const struct state *st)
{
    static const char *const crashes[] = {"", " kill=before", " kill=torn", " kill=after"};
    for (int i = 0; i < EMU_MAX_FAULTS; i++) {
        const struct fault *f = &st->fault[i];
        if (!f->used)
            continue;
        char gpu[16] = "any";
        if (f->gpu >= 0)
            snprintf(gpu, sizeof gpu, "%d", f->gpu);
        printf("fault: call=%s gpu=%s nth=%u times=%u error=%s%s%s", call_name(f->call), gpu, f->nth, f->times,
               rc_name((nvmlReturn_t)f->rc), f->after && !f->crash && !f->activation ? " after" : "", crashes[f->crash]);
        if (f->activation)
            printf(" activation=%s", rc_name((nvmlReturn_t)f->activation));
        putchar('\n');
    }
}

static nvmlReturn_t error_by_name(const char *name)
{
    int rc = rc_by_name(name);
    if (rc <= 0)
        ctl_fail(EXIT_USAGE, "unknown error %s; for example IN_USE, INSUFFICIENT_RESOURCES, GPU_IS_LOST", name);
    return (nvmlReturn_t)rc;
}

int cmd_fault(int argc, char **argv)
{
    static const struct option options[] = {
        {"call", 1, 0, 'c'},
        {"gpu", 1, 0, 'g'},
        {"nth", 1, 0, 'n'},
        {"times", 1, 0, 't'},
        {"error", 1, 0, 'e'},
        {"after", 0, 0, 'a'},
        {"kill", 1, 0, 'k'},
        {"activation", 1, 0, 'v'},
        {0},
    };
    const char *verb = argc > 1 ? argv[1] : "";
    struct txn t;
    if (strcmp(verb, "list") == 0) {
        ctl_begin(&t, TXN_READ);
        fault_list(t.st);
        txn_end(&t);
        return EXIT_OK;
    }
    if (strcmp(verb, "clear") == 0) {
        ctl_begin(&t, TXN_WRITE);
        memset(t.st->fault, 0, sizeof t.st->fault);
        return ctl_done(&t);
    }
    if (strcmp(verb, "add") != 0)
        ctl_fail(EXIT_USAGE, "fault needs add, list or clear; see nvml-emulator fault --help");
    struct fault f = {.used = 1, .gpu = -1, .nth = 1, .times = 1, .rc = -1};
    int call = -1;
    const char *gpu = NULL;
    for (int o; (o = getopt_long(argc - 1, argv + 1, "", options, NULL)) != -1;) {
        switch (o) {
        case 'c': call = call_or_fail(optarg); break;
        case 'g': gpu = optarg; break;
        case 'n': f.nth = ctl_number(optarg, "--nth", 1000000); break;
        case 't': f.times = ctl_number(optarg, "--times", 1000000); break;
        case 'a': f.after = 1; break;
        case 'e': f.rc = (int)error_by_name(optarg); break;
        case 'v': f.activation = (uint16_t)error_by_name(optarg); break;
        case 'k':
            f.crash = strcmp(optarg, "before") == 0  ? CRASH_BEFORE
                      : strcmp(optarg, "torn") == 0  ? CRASH_TORN
                      : strcmp(optarg, "after") == 0 ? CRASH_AFTER
                                                     : CRASH_NONE;
            if (!f.crash)
                ctl_fail(EXIT_USAGE, "--kill must be before, torn or after");
            break;
        default:
            return EXIT_USAGE;
        }
    }
    if (call < 0 || (f.rc >= 0) + (f.crash != 0) + (f.activation != 0) != 1 || f.nth == 0)
        ctl_fail(EXIT_USAGE, "fault add needs --call, and one of --error, --kill and --activation; see nvml-emulator fault --help");
    if (f.crash && !changes_state(call))
        ctl_fail(EXIT_USAGE, "--kill requires a call that changes the state: CREATE_GI, DESTROY_GI, CREATE_CI, DESTROY_CI, SET_MIG_MODE, SET_LIMITS or RESET");
    if (f.activation && call != CALL_SET_MIG_MODE)
        ctl_fail(EXIT_USAGE, "--activation requires --call SET_MIG_MODE");
    f.call = (uint8_t)call;
    if (f.crash || f.activation) { /* the call runs until the process is killed, or to its end */
        f.after = 1;
        f.rc = NVML_SUCCESS;
    }
    ctl_begin(&t, TXN_WRITE);
    if (gpu)
        f.gpu = (int16_t)ctl_gpu(&t, gpu);
    for (int i = 0; i < EMU_MAX_FAULTS; i++)
        if (!t.st->fault[i].used) {
            t.st->fault[i] = f;
            return ctl_done(&t);
        }
    ctl_fail(EXIT_REFUSED, "there can be at most %d faults at a time; see nvml-emulator fault list", EMU_MAX_FAULTS);
}

int cmd_drift(int argc, char **argv)
{
    static const struct option options[] = {{"gpu", 1, 0, 'g'}, {"profile", 1, 0, 'p'}, {"name", 1, 0, 'n'}, {"memory", 1, 0, 'm'}, {0}};
    const char *gpu = NULL, *profile = NULL;
    struct drift drift = {0};
    for (int o; (o = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (o == 'g')
            gpu = optarg;
        else if (o == 'p')
            profile = optarg;
        else if (o == 'n')
            snprintf(drift.name, sizeof drift.name, "%s", optarg);
        else if (o == 'm')
            drift.memory_mib = ctl_number(optarg, "--memory", 10000000);
        else
            return EXIT_USAGE;
    }
    if (!profile || optind != argc)
        ctl_fail(EXIT_USAGE, "drift needs --profile; see nvml-emulator drift --help");
    struct txn t;
    ctl_begin(&t, TXN_WRITE);
    int changed = 0;
    for (unsigned i = 0; i < t.st->ngpus; i++) {
        int p = rules_profile_by_name(&t.st->gpu[i], profile);
        if (p < 0 || !selected(&t, i, -1, gpu))
            continue;
        t.st->gpu[i].drift[p] = drift;
        changed++;
    }
    if (!changed)
        ctl_fail(EXIT_REFUSED, "no selected GPU has a profile %s", profile);
    return ctl_done(&t);
}

int cmd_uuid(int argc, char **argv)
{
    if (argc != 2 || (strcmp(argv[1], "fresh") != 0 && strcmp(argv[1], "repeat") != 0))
        ctl_fail(EXIT_USAGE, "uuid needs fresh or repeat");
    struct txn t;
    ctl_begin(&t, TXN_WRITE);
    t.st->repeat_uuids = strcmp(argv[1], "repeat") == 0;
    return ctl_done(&t);
}
