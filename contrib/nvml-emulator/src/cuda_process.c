/*
 * cuda-process simulates a CUDA program. The process opens the MIG device in CUDA_VISIBLE_DEVICES, and allocates memory
 * on the MIG device according to a curve. Any user may run cuda-process.
 */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#include "curve.h"
#include "device.h"
#include "ops.h"
#include "rules.h"

enum {
    EXIT_CUDA = 1,
    EXIT_USAGE = 2,
    EXIT_NO_DEVICE = 3,
    EXIT_SHARED = 4,
    EXIT_UNEXPECTED = 5,
};

#define TICK_MS 50 /* interval between changes of the memory use */

static const char usage[] =
    "Usage: cuda-process [--memory MIB | --curve S:MIB,S:MIB,...] [--util SHARE] [--seconds S] [--expect PROFILE] [--exclusive]\n"
    "                    [--print]\n\n"
    "Use the MIG device in CUDA_VISIBLE_DEVICES and some of its memory for S seconds. The default of S is the time of the\n"
    "last point of the curve, or 0 without --curve. Between two points, the memory use changes linearly. --util: keep this\n"
    "share (0 to 1) of the device's SMs busy. --expect: fail if the device has another profile. --exclusive: fail if another\n"
    "process uses the device. --print: print a line about the device.\n\n"
    "Exit status: 0 success; 1 CUDA failed (out of memory, device removed); 2 wrong usage; 3 CUDA_VISIBLE_DEVICES is not\n"
    "exactly one MIG device that this user may open; 4 another process uses the device (--exclusive); 5 the device does\n"
    "not have the profile of --expect. SIGTERM, SIGINT and SIGHUP end the process.\n";

static struct curve curve = {.n = 1};
static double seconds = -1, util;
static const char *expect;
static bool exclusive, print;
static volatile sig_atomic_t stopped;

static struct client me;

static void on_signal(int sig)
{
    stopped = sig;
}

_Noreturn static void fail(int status, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fprintf(stderr, "cuda-process: ");
    vfprintf(stderr, fmt, ap);
    fprintf(stderr, "\n");
    va_end(ap);
    exit(status);
}

static void begin(struct txn *t, enum txn_mode mode)
{
    if (txn_begin(t, state_path(), mode) != TXN_OK)
        fail(EXIT_NO_DEVICE, "no CUDA driver: %s", t->error);
}

static void commit(struct txn *t)
{
    if (txn_commit(t) != 0)
        fail(EXIT_CUDA, "%s", t->error);
    txn_end(t);
}

static void options(int argc, char **argv)
{
    static const struct option list[] = {
        {"memory", 1, 0, 'm'},
        {"curve", 1, 0, 'c'},
        {"util", 1, 0, 'u'},
        {"seconds", 1, 0, 's'},
        {"expect", 1, 0, 'e'},
        {"exclusive", 0, 0, 'x'},
        {"print", 0, 0, 'p'},
        {"help", 0, 0, 'h'},
        {0},
    };
    char *end, point[64];
    for (int o; (o = getopt_long(argc, argv, "h", list, NULL)) != -1;) {
        switch (o) {
        case 'm':
            snprintf(point, sizeof point, "0:%s", optarg);
            if (!curve_parse(point, &curve) || curve.n != 1)
                fail(EXIT_USAGE, "--memory %s is not a number of MiB", optarg);
            break;
        case 'c':
            if (!curve_parse(optarg, &curve))
                fail(EXIT_USAGE, "--curve %s is not SECONDS:MIB,SECONDS:MIB,... with increasing times", optarg);
            break;
        case 'u':
            util = strtod(optarg, &end);
            if (end == optarg || *end || !(util >= 0 && util <= 1))
                fail(EXIT_USAGE, "--util %s is not a share between 0 and 1", optarg);
            break;
        case 's':
            seconds = strtod(optarg, &end);
            if (end == optarg || *end || seconds < 0)
                fail(EXIT_USAGE, "--seconds %s is not a number", optarg);
            break;
        case 'e': expect = optarg; break;
        case 'x': exclusive = true; break;
        case 'p': print = true; break;
        case 'h': fputs(usage, stdout); exit(0);
        default: exit(EXIT_USAGE);
        }
    }
    if (optind != argc)
        fail(EXIT_USAGE, "unexpected argument %s; see --help", argv[optind]);
    if (seconds < 0)
        seconds = curve.seconds[curve.n - 1];
}

static void may_open(const char *path)
{
    if (!device_may_open(path))
        fail(EXIT_NO_DEVICE, "no CUDA-capable device: %s: %s", path, strerror(errno));
}

/* acquire finds the device, checks that this process may use it, and registers the process as a client. */
static void acquire(void)
{
    const char *uuid = getenv("CUDA_VISIBLE_DEVICES");
    if (!uuid || strncasecmp(uuid, "MIG-", 4) != 0 || strchr(uuid, ','))
        fail(EXIT_NO_DEVICE, "CUDA_VISIBLE_DEVICES must be exactly one MIG UUID, but is %s", uuid ? uuid : "not set");
    struct txn t;
    unsigned gpu, gi, ci;
    begin(&t, TXN_WRITE);
    if (!ops_find_ci(t.st, uuid, &gpu, &gi, &ci))
        fail(EXIT_NO_DEVICE, "no CUDA-capable device: %s does not exist", uuid);
    struct gpu_state *g = &t.st->gpu[gpu];
    const struct gi_state *instance = &g->gi[gi];
    if (g->lost)
        fail(EXIT_NO_DEVICE, "no CUDA-capable device: GPU %u is lost", gpu);
    if (t.st->dev_root[0]) {
        char path[512];
        snprintf(path, sizeof path, "%s/nvidiactl", t.st->dev_root);
        may_open(path);
        snprintf(path, sizeof path, "%s/nvidia%u", t.st->dev_root, gpu);
        may_open(path);
        device_cap_path(t.st, gpu, gi, -1, path, sizeof path);
        may_open(path);
        device_cap_path(t.st, gpu, gi, (int)ci, path, sizeof path);
        may_open(path);
    }
    if (exclusive && ops_clients(t.st, gpu, (int)gi, -1))
        fail(EXIT_SHARED, "another process uses %s", uuid);
    if (expect && strcasecmp(expect, rules_name(g, instance->profile)) != 0)
        fail(EXIT_UNEXPECTED, "%s is a %s, not a %s", uuid, rules_name(g, instance->profile), expect);
    struct client *slot = NULL;
    for (int i = 0; i < EMU_MAX_CLIENTS && !slot; i++)
        if (t.st->client[i].pid == 0)
            slot = &t.st->client[i];
    if (!slot)
        fail(EXIT_CUDA, "the emulator allows at most %d processes", EMU_MAX_CLIENTS);
    me = (struct client){.pid = (uint32_t)getpid(),
                         .start_time = process_start_time((uint32_t)getpid()),
                         .ci_serial = instance->ci[ci].serial,
                         .busy = (uint32_t)(util * EMU_BUSY + 0.5),
                         .gpu = (uint8_t)gpu,
                         .gi = (uint8_t)gi,
                         .ci = (uint8_t)ci};
    if (me.start_time == 0)
        fail(EXIT_NO_DEVICE, "no CUDA driver: the emulator identifies processes with /proc, which this process cannot read");
    *slot = me;
    struct event e = EVENT("process-start");
    e.gpu = (int)gpu, e.gi = (int)gi, e.ci = (int)ci, e.pid = (int)me.pid;
    e.profile = instance->profile, e.start = instance->start, e.size = instance->size, e.uuid = instance->ci[ci].uuid;
    ops_log(&t, &e, NVML_SUCCESS);
    if (txn_commit(&t) != 0)
        fail(EXIT_CUDA, "%s", t.error);
    if (print) {
        printf("uuid=%s gpu=%u gi=%u profile=%s start=%u memory_mib=%u\n", uuid, gpu, gi, rules_name(g, instance->profile), instance->start,
               rules_memory_mib(g, instance->profile));
        fflush(stdout);
    }
    txn_end(&t);
}

static struct client *find_me(struct txn *t)
{
    for (int i = 0; i < EMU_MAX_CLIENTS; i++) {
        struct client *c = &t->st->client[i];
        if (c->pid == me.pid && c->start_time == me.start_time)
            return c;
    }
    return NULL;
}

static const struct gi_state *device_of(struct txn *t)
{
    const struct gpu_state *g = &t->st->gpu[me.gpu];
    const struct gi_state *gi = &g->gi[me.gi];
    return !g->lost && gi->used && gi->ci[me.ci].serial == me.ci_serial ? gi : NULL;
}

static void leave(struct txn *t, const char *why, nvmlReturn_t rc)
{
    struct client *c = find_me(t);
    const struct gi_state *gi = device_of(t);
    struct event e = EVENT(why);
    e.gpu = me.gpu, e.gi = me.gi, e.ci = me.ci, e.pid = (int)me.pid;
    if (gi)
        e.profile = gi->profile, e.start = gi->start, e.size = gi->size, e.uuid = gi->ci[me.ci].uuid;
    ops_log(t, &e, rc);
    if (c)
        *c = (struct client){0};
    commit(t);
}

/* use sets the memory of the process. If the device no longer exists or has too little memory, use ends the process. */
static void use(unsigned mib)
{
    struct txn t;
    begin(&t, mib == me.memory_mib ? TXN_READ : TXN_WRITE);
    const struct gi_state *gi = device_of(&t);
    struct client *c = find_me(&t);
    if (!gi || !c) {
        txn_end(&t);
        begin(&t, TXN_WRITE);
        leave(&t, "process-exit", NVML_ERROR_GPU_IS_LOST);
        fail(EXIT_CUDA, "CUDA error: the device no longer exists");
    }
    if (mib == me.memory_mib) {
        txn_end(&t);
        return;
    }
    unsigned total = rules_memory_mib(&t.st->gpu[me.gpu], gi->profile);
    unsigned others = ops_used_mib(t.st, me.gpu, me.gi) - c->memory_mib;
    if (mib > me.memory_mib && others + mib > total) {
        leave(&t, "process-oom", NVML_ERROR_MEMORY);
        fail(EXIT_CUDA, "CUDA out of memory. Tried to allocate %u MiB (%u MiB total capacity; %u MiB already allocated; %u MiB free)",
             mib - me.memory_mib, total, others + me.memory_mib, total - others - me.memory_mib);
    }
    c->memory_mib = me.memory_mib = mib;
    commit(&t);
}

static double now(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
    options(argc, argv);
    struct sigaction sa = {.sa_handler = on_signal};
    sigaction(SIGTERM, &sa, NULL);
    sigaction(SIGINT, &sa, NULL);
    sigaction(SIGHUP, &sa, NULL);
    acquire();
    double start = now();
    for (;;) {
        double elapsed = now() - start;
        bool last = elapsed >= seconds;
        use(curve_at(&curve, last ? seconds : elapsed));
        if (last || stopped)
            break;
        double left = seconds - elapsed;
        struct timespec tick = {0, (left * 1000 < TICK_MS ? (long)(left * 1e9) : (long)TICK_MS * 1000000)};
        nanosleep(&tick, NULL);
    }
    struct txn t;
    begin(&t, TXN_WRITE);
    leave(&t, "process-exit", NVML_SUCCESS);
    if (stopped) {
        signal(stopped, SIG_DFL);
        raise(stopped);
    }
    return 0;
}
