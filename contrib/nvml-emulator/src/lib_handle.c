/* This file implements the tables of handles. Each entry records a place and an instance at that place. */
#include "lib.h"

#include <pthread.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static struct place gpus[EMU_MAX_GPUS];
static struct place gis[EMU_MAX_GPUS][EMU_MAX_GI];
static struct place cis[EMU_MAX_GPUS][EMU_MAX_GI][EMU_MAX_CI];
static struct place migs[EMU_MAX_GPUS][EMU_MAX_GI][EMU_MAX_CI];

static void *stamp(struct place *p, struct place now)
{
    pthread_mutex_lock(&mutex);
    *p = now;
    pthread_mutex_unlock(&mutex);
    return p;
}

nvmlDevice_t handle_gpu(unsigned gpu)
{
    return stamp(&gpus[gpu], (struct place){.kind = KIND_GPU, .gpu = (uint8_t)gpu});
}

nvmlDevice_t handle_mig(unsigned gpu, unsigned gi, unsigned ci, uint64_t serial)
{
    return stamp(&migs[gpu][gi][ci],
                 (struct place){.kind = KIND_MIG, .gpu = (uint8_t)gpu, .gi = (uint8_t)gi, .ci = (uint8_t)ci, .serial = serial});
}

nvmlGpuInstance_t handle_gi(unsigned gpu, unsigned gi, uint64_t serial)
{
    return stamp(&gis[gpu][gi], (struct place){.kind = KIND_GI, .gpu = (uint8_t)gpu, .gi = (uint8_t)gi, .serial = serial});
}

nvmlComputeInstance_t handle_ci(unsigned gpu, unsigned gi, unsigned ci, uint64_t serial)
{
    return stamp(&cis[gpu][gi][ci],
                 (struct place){.kind = KIND_CI, .gpu = (uint8_t)gpu, .gi = (uint8_t)gi, .ci = (uint8_t)ci, .serial = serial});
}

static bool within(const void *p, const void *table, size_t size)
{
    uintptr_t a = (uintptr_t)p, t = (uintptr_t)table;
    return a >= t && a < t + size && (a - t) % sizeof(struct place) == 0;
}

bool handle_place(const void *handle, struct place *p)
{
    if (!within(handle, gpus, sizeof gpus) && !within(handle, gis, sizeof gis) && !within(handle, cis, sizeof cis) &&
        !within(handle, migs, sizeof migs))
        return false;
    pthread_mutex_lock(&mutex);
    *p = *(const struct place *)handle;
    pthread_mutex_unlock(&mutex);
    return p->kind != 0;
}
