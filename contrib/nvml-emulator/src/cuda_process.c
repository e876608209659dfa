/*
 * cuda-process simulates a CUDA program. It opens the MIG device or the whole GPUs in CUDA_VISIBLE_DEVICES, and
 * allocates memory on each device according to a curve. Any user may run it.
 */
#include <getopt.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "cuda.h"
#include "curve.h"

#define TICK_MS 50 /* interval between changes in the memory use */

static const char usage[] =
    "Usage: cuda-process [--memory MIB | --curve S:MIB,S:MIB,...] [--util SHARE] [--seconds S] [--expect PROFILE]\n"
    "                    [--expect-gpus N] [--exclusive] [--print] [--graphics] [--uncharged] [--managed]\n\n"
    "Hold the devices in CUDA_VISIBLE_DEVICES, and some of their memory, for S seconds. The devices are one MIG UUID,\n"
    "or whole GPUs (indices or UUIDs). S defaults to the end of the curve, or 0. Between two points, the curve is\n"
    "linear. --util: keep this share (0 to 1) of each device's SMs busy. --expect: fail unless the device has this profile.\n"
    "--expect-gpus: fail unless exactly N whole GPUs are visible and this process may not open any other GPU's device file.\n"
    "--exclusive: fail if another process holds a device. --print: print a line about each device.\n"
    "--graphics: be a graphics process, which the driver lists separately from compute processes.\n"
    "--uncharged: use a client that an exited process has created, so that no cgroup is charged for the memory.\n"
    "--managed: allocate managed memory, which no cgroup is charged for, and which moves to the host's memory if other\n"
    "processes need the GPU's.\n\n"
    "Exit status: 0 success; 1 CUDA failed (out of memory, device removed); 2 wrong usage; 3 CUDA_VISIBLE_DEVICES does not\n"
    "contain one MIG device or whole GPUs that this user may open; 4 another process holds a device (--exclusive); 5 the\n"
    "device does not have the profile of --expect, or the GPUs are not those of --expect-gpus. A signal ends the process as\n"
    "usual.\n";

static struct curve curve = {.n = 1};
static double seconds = -1;
static struct wish wish;
static volatile sig_atomic_t stopped;

static void on_signal(int sig)
{
    stopped = sig;
}

_Noreturn void cuda_fail(int status, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fprintf(stderr, "cuda-process: ");
    vfprintf(stderr, fmt, ap);
    fprintf(stderr, "\n");
    va_end(ap);
    exit(status);
}

static void options(int argc, char **argv)
{
    static const struct option list[] = {
        {"memory", 1, 0, 'm'},
        {"curve", 1, 0, 'c'},
        {"util", 1, 0, 'u'},
        {"seconds", 1, 0, 's'},
        {"expect", 1, 0, 'e'},
        {"expect-gpus", 1, 0, 'g'},
        {"exclusive", 0, 0, 'x'},
        {"print", 0, 0, 'p'},
        {"graphics", 0, 0, 'G'},
        {"uncharged", 0, 0, 'U'},
        {"managed", 0, 0, 'M'},
        {"help", 0, 0, 'h'},
        {0},
    };
    char *end, point[64];
    for (int o; (o = getopt_long(argc, argv, "h", list, NULL)) != -1;) {
        switch (o) {
        case 'm':
            snprintf(point, sizeof point, "0:%s", optarg);
            if (!curve_parse(point, &curve) || curve.n != 1)
                cuda_fail(EXIT_USAGE, "--memory %s is not a number of MiB", optarg);
            break;
        case 'c':
            if (!curve_parse(optarg, &curve))
                cuda_fail(EXIT_USAGE, "--curve %s is not SECONDS:MIB,SECONDS:MIB,... with increasing times", optarg);
            break;
        case 'u':
            wish.util = strtod(optarg, &end);
            if (end == optarg || *end || !(wish.util >= 0 && wish.util <= 1))
                cuda_fail(EXIT_USAGE, "--util %s is not a share between 0 and 1", optarg);
            break;
        case 's':
            seconds = strtod(optarg, &end);
            if (end == optarg || *end || seconds < 0)
                cuda_fail(EXIT_USAGE, "--seconds %s is not a number", optarg);
            break;
        case 'g':
            wish.expect_gpus = (unsigned)strtoul(optarg, &end, 10);
            if (*optarg < '0' || *optarg > '9' || *end || wish.expect_gpus < 1 || wish.expect_gpus > EMU_MAX_GPUS)
                cuda_fail(EXIT_USAGE, "--expect-gpus %s is not a number from 1 to %d", optarg, EMU_MAX_GPUS);
            break;
        case 'e': wish.expect = optarg; break;
        case 'x': wish.exclusive = true; break;
        case 'G': wish.graphics = true; break;
        case 'U': wish.uncharged = true; break;
        case 'M': wish.managed = true; break;
        case 'p': wish.print = true; break;
        case 'h': fputs(usage, stdout); exit(0);
        default: exit(EXIT_USAGE);
        }
    }
    if (optind != argc)
        cuda_fail(EXIT_USAGE, "unexpected argument %s; see --help", argv[optind]);
    if (seconds < 0)
        seconds = curve.seconds[curve.n - 1];
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
    cuda_acquire(&wish);
    double start = now();
    for (;;) {
        double elapsed = now() - start;
        bool last = elapsed >= seconds;
        cuda_use(curve_at(&curve, last ? seconds : elapsed));
        if (last || stopped)
            break;
        double left = seconds - elapsed;
        struct timespec tick = {0, (left * 1000 < TICK_MS ? (long)(left * 1e9) : (long)TICK_MS * 1000000)};
        nanosleep(&tick, NULL);
    }
    cuda_leave();
    if (stopped) {
        signal(stopped, SIG_DFL);
        raise(stopped);
    }
    return 0;
}
