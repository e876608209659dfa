#ifndef FUZZ_H
#define FUZZ_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define must(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "%s:%d: check failed: %s\n", __FILE__, __LINE__, #condition); \
            abort(); \
        } \
    } while (0)

/* fuzz_process runs body as an emulated process, which may exit or be killed, and returns the exit status. */
int fuzz_process(int (*body)(void *), void *argument);

/* ctl_main is the main function of ctl.c. */
int ctl_main(int argc, char **argv);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

/*
 * use_library acts as a client of the library. which points to a byte that selects the GPU and determines whether the
 * client reads profiles, instances or MIG devices.
 */
int use_library(void *which);

#endif
