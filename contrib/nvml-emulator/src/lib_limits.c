/*
 * This file implements the memory limits of cgroups. The structures are those of the nvml.h of release 615, which
 * go-nvml does not contain yet.
 */
#include "cgroup.h"
#include "lib.h"

typedef struct {
    const char *nameSpace; /* the path of the cgroup's directory */
    unsigned long long softLimit, hardLimit;
} nvmlSetMemoryLimits_v1_t;

typedef struct {
    const char *nameSpace;
    unsigned long long softLimit, hardLimit, currentUsed;
} nvmlGetMemoryLimits_v1_t;

nvmlReturn_t nvmlDeviceSetMemoryLimits_v1(nvmlDevice_t device, const nvmlSetMemoryLimits_v1_t *limits);
nvmlReturn_t nvmlDeviceGetMemoryLimits_v1(nvmlDevice_t device, nvmlGetMemoryLimits_v1_t *limits);

/* Soft limits, which concern only MPS servers, are not emulated. */
nvmlReturn_t nvmlDeviceSetMemoryLimits_v1(nvmlDevice_t device, const nvmlSetMemoryLimits_v1_t *limits)
{
    struct call c = CALL(CALL_SET_LIMITS);
    c.write = c.root = true;
    c.event = EVENT("set-limits");
    if (!limits || !limits->nameSpace || limits->softLimit > limits->hardLimit)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t rc = call_gpu(&c, device);
    if (rc != NVML_SUCCESS)
        return rc;
    if (limits->softLimit)
        return call_end(&c, NVML_ERROR_NOT_SUPPORTED);
    return call_end(&c, cgroup_set(c.st, (unsigned)c.gpu, limits->nameSpace, limits->hardLimit));
}

nvmlReturn_t nvmlDeviceGetMemoryLimits_v1(nvmlDevice_t device, nvmlGetMemoryLimits_v1_t *limits)
{
    struct call c = CALL(CALL_GET_LIMITS);
    uint64_t bytes, used;
    if (!limits || !limits->nameSpace)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t rc = call_gpu(&c, device);
    if (rc != NVML_SUCCESS)
        return rc;
    rc = cgroup_get(c.st, (unsigned)c.gpu, limits->nameSpace, &bytes, &used);
    if (rc == NVML_SUCCESS) {
        limits->softLimit = 0;
        limits->hardLimit = bytes;
        limits->currentUsed = used;
    }
    return call_end(&c, rc);
}
