/*
 * For fuzzing, this header is included before every source of the emulator. It replaces the functions through which a
 * damaged state could change the machine that runs the fuzz target. When an emulated process ends, the replacement for
 * exit or kill jumps back into the fuzz target.
 */
#ifndef FUZZ_WORLD_H
#define FUZZ_WORLD_H

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

extern FILE *fuzz_stderr;

int fuzz_touch(const char *path, ...);
FILE *fuzz_fopen(const char *path, const char *mode);
int fuzz_kill(pid_t pid, int sig);
int fuzz_nanosleep(const struct timespec *want, struct timespec *left);
_Noreturn void fuzz_exit(int status);
void *fuzz_calloc(size_t n, size_t size);
void fuzz_free(void *p);

#undef stderr
#define stderr fuzz_stderr
#define mknod fuzz_touch
#define unlink fuzz_touch
#define chmod fuzz_touch
#define mkdir fuzz_touch
#define fchmod(fd, mode) fuzz_touch("fd", fd, mode)
#define fopen fuzz_fopen
#define kill fuzz_kill
#define nanosleep fuzz_nanosleep
#define exit fuzz_exit
#define calloc fuzz_calloc
#define free fuzz_free
#define main ctl_main

#endif
