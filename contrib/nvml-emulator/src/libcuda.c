/*
 * This file implements the part of CUDA's driver API that `caelumd qualify` calls, as libcuda.so.1. A process has one
 * device, the first in CUDA_VISIBLE_DEVICES. The handles are those of the CUDA driver API's documentation, with any value.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include "cuda.h"

enum { SUCCESS = 0,
       OUT_OF_MEMORY = 2,
       NO_DEVICE = 100 };

static jmp_buf failed; /* where cuda_fail continues */
static unsigned used;  /* the memory that the process has allocated, in MiB */

_Noreturn void cuda_fail(int status, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
    longjmp(failed, status == EXIT_CUDA ? OUT_OF_MEMORY : NO_DEVICE);
}

int cuInit(unsigned flags);
int cuDeviceGet(int *device, int ordinal);
int cuDevicePrimaryCtxRetain(void **context, int device);
int cuCtxSetCurrent(void *context);
int cuCtxSynchronize(void);
int cuMemGetInfo_v2(size_t *left, size_t *total);
int cuMemAlloc_v2(unsigned long long *address, size_t bytes);
int cuMemAllocManaged(unsigned long long *address, size_t bytes, unsigned flags);
int cuMemsetD8_v2(unsigned long long address, unsigned char value, size_t bytes);

int cuInit(unsigned flags)
{
    return (int)flags;
}

int cuDeviceGet(int *device, int ordinal)
{
    *device = ordinal;
    return SUCCESS;
}

int cuDevicePrimaryCtxRetain(void **context, int device)
{
    int status = setjmp(failed);
    if (status)
        return status;
    cuda_acquire(&(struct wish){0});
    *context = &failed;
    return device;
}

int cuCtxSetCurrent(void *context)
{
    return context ? SUCCESS : NO_DEVICE;
}

int cuCtxSynchronize(void)
{
    return SUCCESS;
}

int cuMemGetInfo_v2(size_t *left, size_t *total)
{
    int status = setjmp(failed);
    if (status)
        return status;
    *total = (size_t)cuda_total() << 20;
    *left = *total - ((size_t)used << 20);
    return SUCCESS;
}

int cuMemAlloc_v2(unsigned long long *address, size_t bytes)
{
    int status = setjmp(failed);
    if (status)
        return status;
    used += (unsigned)(bytes >> 20);
    cuda_use(used);
    *address = bytes;
    return SUCCESS;
}

/* From now on, all memory of the process is managed. */
int cuMemAllocManaged(unsigned long long *address, size_t bytes, unsigned flags)
{
    int status = setjmp(failed);
    if (status)
        return status;
    (void)flags;
    cuda_leave();
    cuda_acquire(&(struct wish){.managed = true});
    return cuMemAlloc_v2(address, bytes);
}

int cuMemsetD8_v2(unsigned long long address, unsigned char value, size_t bytes)
{
    (void)value;
    return address == bytes ? SUCCESS : NO_DEVICE;
}
