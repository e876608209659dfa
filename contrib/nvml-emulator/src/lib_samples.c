/* This file implements the utilization of single processes, which `cuda-process --util` reports. */
#include <time.h>

#include "lib.h"

/*
 * nvmlDeviceGetProcessUtilization returns one sample for each process that uses the GPU's SMs. All samples are as old
 * as the call, so that lastSeenTimeStamp excludes none. With MIG mode on, the call is not supported (nvml.h).
 */
nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t *utilization,
                                             unsigned int *processSamplesCount, unsigned long long lastSeenTimeStamp)
{
    struct call c = CALL(CALL_PROCESSES);
    (void)lastSeenTimeStamp;
    if (!processSamplesCount)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t rc = call_gpu(&c, device);
    if (rc != NVML_SUCCESS)
        return rc;
    if (c.g->mig)
        return call_end(&c, NVML_ERROR_NOT_SUPPORTED);
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    unsigned room = utilization ? *processSamplesCount : 0, n = 0;
    for (int i = 0; i < EMU_MAX_CLIENTS; i++) {
        const struct client *p = &c.st->client[i];
        if (!client_live(p) || p->gpu != c.gpu || p->busy == 0)
            continue;
        if (n < room)
            utilization[n] = (nvmlProcessUtilizationSample_t){
                .pid = p->pid,
                .timeStamp = (unsigned long long)now.tv_sec * 1000000 + (unsigned long long)now.tv_nsec / 1000,
                .smUtil = (p->busy * 100 + EMU_BUSY / 2) / EMU_BUSY,
            };
        n++;
    }
    *processSamplesCount = n;
    if (n == 0)
        return call_end(&c, NVML_ERROR_NOT_FOUND);
    return call_end(&c, n > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS);
}
