/*
 * This file implements queries about a GPU's place in its machine: the NVLink fabric, virtualization and persistence mode.
 */
#include <string.h>
#include <time.h>

#include "device.h"
#include "lib.h"

/*
 * fabric_state returns NVML_GPU_FABRIC_STATE_*. On a system with NVSwitches, Fabric Manager registers the GPUs. It needs the
 * capability fabric-mgmt (fm_session_api.c in the open kernel modules 595.45.04), and takes some time after MIG mode is
 * switched off. A GPU whose MIG mode is on has no NVLinks.
 */
static unsigned char fabric_state(const struct call *c)
{
    struct timespec now;
    if (!(c->st->host & EMU_FABRIC))
        return NVML_GPU_FABRIC_STATE_NOT_SUPPORTED;
    if (c->g->mig || !device_may_use_system(c->st, EMU_CAP_FABRIC))
        return NVML_GPU_FABRIC_STATE_NOT_STARTED;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t ms = (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
    return ms < c->g->fabric_ms ? NVML_GPU_FABRIC_STATE_IN_PROGRESS : NVML_GPU_FABRIC_STATE_COMPLETED;
}

nvmlReturn_t nvmlDeviceGetGpuFabricInfo(nvmlDevice_t device, nvmlGpuFabricInfo_t *info)
{
    struct call c = CALL(CALL_FABRIC);
    if (!info)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t rc = call_gpu(&c, device);
    if (rc != NVML_SUCCESS)
        return rc;
    *info = (nvmlGpuFabricInfo_t){.state = fabric_state(&c)};
    return call_end(&c, rc);
}

nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, nvmlGpuFabricInfoV_t *info)
{
    struct call c = CALL(CALL_FABRIC);
    if (!info || (info->version != nvmlGpuFabricInfo_v2 && info->version != nvmlGpuFabricInfo_v3))
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t rc = call_gpu(&c, device);
    if (rc != NVML_SUCCESS)
        return rc;
    /* Version 2 is the beginning of version 3. */
    nvmlGpuFabricInfo_v3_t v3 = {.version = info->version, .state = fabric_state(&c)};
    memcpy(info, &v3, info->version == nvmlGpuFabricInfo_v2 ? sizeof(nvmlGpuFabricInfo_v2_t) : sizeof v3);
    return call_end(&c, rc);
}

nvmlReturn_t nvmlDeviceGetVirtualizationMode(nvmlDevice_t device, nvmlGpuVirtualizationMode_t *mode)
{
    struct call c = CALL(CALL_IDENTITY);
    if (!mode)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t rc = call_gpu(&c, device);
    if (rc != NVML_SUCCESS)
        return rc;
    *mode = c.st->host & EMU_PASSTHROUGH ? NVML_GPU_VIRTUALIZATION_MODE_PASSTHROUGH : NVML_GPU_VIRTUALIZATION_MODE_NONE;
    return call_end(&c, rc);
}

nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device, nvmlEnableState_t *mode)
{
    struct call c = CALL(CALL_IDENTITY);
    if (!mode)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t rc = call_gpu(&c, device);
    if (rc != NVML_SUCCESS)
        return rc;
    *mode = c.g->persistence ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED;
    return call_end(&c, rc);
}

nvmlReturn_t nvmlDeviceSetPersistenceMode(nvmlDevice_t device, nvmlEnableState_t mode)
{
    struct call c = CALL(CALL_IDENTITY);
    c.write = c.root = true;
    nvmlReturn_t rc = call_gpu(&c, device);
    if (rc != NVML_SUCCESS)
        return rc;
    c.g->persistence = mode == NVML_FEATURE_ENABLED;
    return call_end(&c, rc);
}
