/*
 * This file implements GPM, which measures the utilization of a GPU or of a GPU instance between two samples on Hopper and later GPUs.
 * The only metric is the share of busy SMs as reported by the instance's processes, at the time of the second sample.
 */
#include <stdlib.h>

#include "lib.h"

struct nvmlGpmSample_st {
    uint64_t serial; /* serial number of the instance; 0 if the struct holds no sample */
    unsigned busy;
};

/*
 * According to nvml.h, GPM is available "for Hopper or newer". These are precisely the GPU models whose MIG mode
 * changes without a reset.
 */
static bool supported(const struct board *b)
{
    return b->live_mode;
}

nvmlReturn_t nvmlGpmQueryDeviceSupport(nvmlDevice_t device, nvmlGpmSupport_t *gpmSupport)
{
    struct call c = CALL(CALL_GPM);
    if (!gpmSupport)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (gpmSupport->version != NVML_GPM_SUPPORT_VERSION)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    nvmlReturn_t rc = call_gpu(&c, device);
    if (rc != NVML_SUCCESS)
        return rc;
    gpmSupport->isSupportedDevice = supported(c.b);
    return call_end(&c, rc);
}

nvmlReturn_t nvmlGpmSampleAlloc(nvmlGpmSample_t *gpmSample)
{
    if (!lib_initialized())
        return NVML_ERROR_UNINITIALIZED;
    if (!gpmSample)
        return NVML_ERROR_INVALID_ARGUMENT;
    *gpmSample = calloc(1, sizeof **gpmSample);
    return *gpmSample ? NVML_SUCCESS : NVML_ERROR_MEMORY;
}

nvmlReturn_t nvmlGpmSampleFree(nvmlGpmSample_t gpmSample)
{
    if (!gpmSample)
        return NVML_ERROR_INVALID_ARGUMENT;
    free(gpmSample);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpmMigSampleGet(nvmlDevice_t device, unsigned int gpuInstanceId, nvmlGpmSample_t gpmSample)
{
    struct call c = CALL(CALL_GPM);
    if (!gpmSample)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t rc = call_gpu(&c, device);
    if (rc != NVML_SUCCESS)
        return rc;
    if (!supported(c.b) || !c.g->mig)
        return call_end(&c, NVML_ERROR_NOT_SUPPORTED);
    if (gpuInstanceId >= EMU_MAX_GI || !c.g->gi[gpuInstanceId].used)
        return call_end(&c, NVML_ERROR_NOT_FOUND);
    gpmSample->serial = c.g->gi[gpuInstanceId].serial;
    gpmSample->busy = ops_busy(c.st, (unsigned)c.gpu, gpuInstanceId);
    return call_end(&c, rc);
}

/* A sample of a whole GPU has a serial number that no instance has. */
nvmlReturn_t nvmlGpmSampleGet(nvmlDevice_t device, nvmlGpmSample_t gpmSample)
{
    struct call c = CALL(CALL_GPM);
    if (!gpmSample)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t rc = call_gpu(&c, device);
    if (rc != NVML_SUCCESS)
        return rc;
    if (!supported(c.b) || c.g->mig)
        return call_end(&c, NVML_ERROR_NOT_SUPPORTED);
    gpmSample->serial = UINT64_MAX - (unsigned)c.gpu;
    gpmSample->busy = ops_busy(c.st, (unsigned)c.gpu, EMU_WHOLE);
    return call_end(&c, rc);
}

nvmlReturn_t nvmlGpmMetricsGet(nvmlGpmMetricsGet_t *metricsGet)
{
    if (!lib_initialized())
        return NVML_ERROR_UNINITIALIZED;
    if (!metricsGet || !metricsGet->sample1 || !metricsGet->sample2 || metricsGet->numMetrics > NVML_GPM_METRIC_MAX)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (metricsGet->version != NVML_GPM_METRICS_GET_VERSION)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (metricsGet->sample1->serial == 0 || metricsGet->sample1->serial != metricsGet->sample2->serial)
        return NVML_ERROR_INVALID_ARGUMENT; /* a sample is missing, or the instances differ */
    for (unsigned i = 0; i < metricsGet->numMetrics; i++) {
        nvmlGpmMetric_t *m = &metricsGet->metrics[i];
        m->nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
        if (m->metricId == NVML_GPM_METRIC_SM_UTIL) {
            m->value = 100.0 * metricsGet->sample2->busy / EMU_BUSY;
            m->nvmlReturn = NVML_SUCCESS;
        }
    }
    return NVML_SUCCESS;
}
