/*
 * This file implements event sets. The only events are critical errors (Xid), which `nvml-emulator xid` and
 * `nvml-emulator lose` cause.
 */
#include <stdlib.h>
#include <time.h>

#include "lib.h"

#define POLL_MS 100 /* each look at the state takes its lock, and an agent waits for the events of every GPU */

struct nvmlEventSet_st {
    bool watched[EMU_MAX_GPUS];
    uint64_t seen[EMU_MAX_GPUS]; /* xid_seq when the GPU was registered or the last event was delivered */
};

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set)
{
    if (!lib_initialized())
        return NVML_ERROR_UNINITIALIZED;
    if (!set)
        return NVML_ERROR_INVALID_ARGUMENT;
    *set = calloc(1, sizeof **set);
    return *set ? NVML_SUCCESS : NVML_ERROR_MEMORY;
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set)
{
    if (!set)
        return NVML_ERROR_INVALID_ARGUMENT;
    free(set);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *eventTypes)
{
    struct call c = CALL(CALL_EVENTS);
    if (!eventTypes)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t rc = call_gpu(&c, device);
    if (rc != NVML_SUCCESS)
        return rc;
    *eventTypes = nvmlEventTypeXidCriticalError;
    return call_end(&c, c.g->lost ? NVML_ERROR_GPU_IS_LOST : NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long eventTypes, nvmlEventSet_t set)
{
    struct call c = CALL(CALL_EVENTS);
    if (!set)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t rc = call_gpu(&c, device);
    if (rc != NVML_SUCCESS)
        return rc;
    if (c.g->lost)
        return call_end(&c, NVML_ERROR_GPU_IS_LOST);
    if (eventTypes & ~(unsigned long long)nvmlEventTypeXidCriticalError)
        return call_end(&c, NVML_ERROR_NOT_SUPPORTED);
    set->watched[c.gpu] = true;
    set->seen[c.gpu] = c.g->xid_seq;
    return call_end(&c, rc);
}

/*
 * deliver copies an event to data. If there is none, it returns NVML_ERROR_TIMEOUT. For a lost GPU, the first call
 * delivers the Xid, and later calls return NVML_ERROR_GPU_IS_LOST.
 */
static nvmlReturn_t deliver(nvmlEventSet_t set, nvmlEventData_t *data)
{
    struct call c = CALL(CALL_EVENTS);
    nvmlReturn_t rc = call_system(&c);
    if (rc != NVML_SUCCESS)
        return rc;
    rc = NVML_ERROR_TIMEOUT;
    for (unsigned i = 0; i < c.st->ngpus && rc == NVML_ERROR_TIMEOUT; i++) {
        const struct gpu_state *g = &c.st->gpu[i];
        if (!set->watched[i])
            continue;
        if (g->xid_seq != set->seen[i]) {
            set->seen[i] = g->xid_seq;
            *data = (nvmlEventData_t){
                .device = handle_gpu(i),
                .eventType = nvmlEventTypeXidCriticalError,
                .eventData = g->xid,
                .gpuInstanceId = g->xid_gi,
                .computeInstanceId = 0xFFFFFFFF,
            };
            rc = NVML_SUCCESS;
        } else if (g->lost) {
            rc = NVML_ERROR_GPU_IS_LOST;
        }
    }
    return call_end(&c, rc);
}

nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeoutms)
{
    if (!set || !data)
        return NVML_ERROR_INVALID_ARGUMENT;
    for (;;) {
        nvmlReturn_t rc = deliver(set, data);
        if (rc != NVML_ERROR_TIMEOUT || timeoutms == 0)
            return rc;
        unsigned ms = timeoutms < POLL_MS ? timeoutms : POLL_MS;
        struct timespec pause = {0, (long)ms * 1000000};
        nanosleep(&pause, NULL);
        timeoutms -= ms;
    }
}

nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeoutms)
{
    return nvmlEventSetWait_v2(set, data, timeoutms);
}
