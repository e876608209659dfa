#include "fuzz.h"

#include <setjmp.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "world.h"
#undef stderr
#undef fopen
#undef kill
#undef exit
#undef calloc
#undef free

FILE *fuzz_stderr;

static jmp_buf ended;
static bool running;
static void *held[8]; /* the emulator's allocations, freed when the emulated process ends */

int fuzz_touch(const char *path, ...)
{
    must(strlen(path) > 0);
    return 0;
}

FILE *fuzz_fopen(const char *path, const char *mode)
{
    must(strlen(path) > 0);
    return fopen(mode[0] == 'r' ? path : "/dev/null", mode);
}

int fuzz_kill(pid_t pid, int sig)
{
    if (sig == SIGKILL)
        fuzz_exit(128 + SIGKILL);
    return kill(pid, sig);
}

int fuzz_nanosleep(const struct timespec *want, struct timespec *left)
{
    (void)left;
    must(want->tv_sec <= 600); /* the maximum of `nvml-emulator latency` */
    return 0;
}

void fuzz_exit(int status)
{
    must(running);
    longjmp(ended, status + 1);
}

void *fuzz_calloc(size_t n, size_t size)
{
    void *p = calloc(n, size);
    for (size_t i = 0; i < sizeof held / sizeof held[0]; i++)
        if (!held[i]) {
            held[i] = p;
            return p;
        }
    must(!"a process with few allocations");
    return NULL;
}

void fuzz_free(void *p)
{
    for (size_t i = 0; i < sizeof held / sizeof held[0]; i++)
        if (held[i] == p)
            held[i] = NULL;
    free(p);
}

int fuzz_process(int (*body)(void *), void *argument)
{
    int first = dup(0), status; /* the lowest free descriptor, which the process will open first */
    close(first);
    running = true;
    status = setjmp(ended);
    status = status ? status - 1 : body(argument);
    running = false;
    close_range((unsigned)first, ~0u, 0);
    for (size_t i = 0; i < sizeof held / sizeof held[0]; i++) {
        free(held[i]);
        held[i] = NULL;
    }
    return status;
}
