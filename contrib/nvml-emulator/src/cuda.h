/*
 * This header declares the parts of cuda-process and libcuda.so.1: the devices in CUDA_VISIBLE_DEVICES, and how they are
 * used.
 */
#ifndef EMU_CUDA_H
#define EMU_CUDA_H

#include "state.h"

enum {
    EXIT_CUDA = 1,
    EXIT_USAGE = 2,
    EXIT_NO_DEVICE = 3,
    EXIT_SHARED = 4,
    EXIT_UNEXPECTED = 5,
};

/* cuda_fail prints a message and ends the program with the status. In libcuda.so.1, it ends the call. */
_Noreturn void cuda_fail(int status, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* struct device is a compute instance, or a whole GPU with gi and ci EMU_WHOLE. */
struct device {
    unsigned gpu, gi, ci;
};

/*
 * cuda_visible writes the devices in CUDA_VISIBLE_DEVICES to devices, and returns their number, which is at least 1. If
 * the process cannot use the devices, it ends the program with EXIT_NO_DEVICE.
 */
unsigned cuda_visible(const struct state *st, const char *list, struct device devices[EMU_MAX_GPUS]);

/*
 * cuda_expect_gpus ends the program with EXIT_UNEXPECTED unless the devices are exactly n whole GPUs and the process
 * may not open the device file of any other GPU.
 */
void cuda_expect_gpus(const struct state *st, const struct device *devices, unsigned count, unsigned n);

/* struct wish holds the program's options that concern its devices. */
struct wish {
    const char *expect;   /* the expected profile, or NULL */
    unsigned expect_gpus; /* the expected number of whole GPUs, or 0 */
    bool exclusive, print, graphics;
    bool uncharged, managed;
    double util;
};

/*
 * cuda_acquire checks that the process may use the devices in CUDA_VISIBLE_DEVICES, and registers the process as a
 * client of each device.
 */
void cuda_acquire(const struct wish *w);

/*
 * cuda_use sets the memory that the process uses on each of its devices, or ends the process if a device no longer
 * exists or has too little memory.
 */
void cuda_use(unsigned mib);

/* cuda_total returns the memory of the first device that the driver shows to the process, in MiB. */
unsigned cuda_total(void);

/* cuda_leave unregisters the process as a client of its devices. */
void cuda_leave(void);

#endif
