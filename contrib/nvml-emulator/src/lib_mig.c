/* This file implements the calls for MIG devices. */
#include "lib.h"
#include "quirk.h"

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count)
{
    struct call c = CALL(CALL_MIG_DEVICES);
    if (!count)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t rc = call_gpu(&c, device);
    if (rc != NVML_SUCCESS)
        return rc;
    *count = 0;
    for (unsigned i = 0; c.g->mig && i < c.b->nprofiles; i++)
        if (c.b->profiles[i].limit > *count)
            *count = c.b->profiles[i].limit;
    return call_end(&c, rc);
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index, nvmlDevice_t *migDevice)
{
    struct call c = CALL(CALL_MIG_DEVICES);
    if (!migDevice)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t rc = call_gpu(&c, device);
    if (rc != NVML_SUCCESS)
        return rc;
    static nvmlDevice_t known[EMU_MAX_GPUS][EMU_MAX_GI * EMU_MAX_CI]; /* the answers so far */
    unsigned wanted = index;
    for (unsigned i = 0; i < EMU_MAX_GI; i++)
        for (unsigned k = 0; k < EMU_MAX_CI; k++)
            if (c.g->gi[i].used && c.g->gi[i].ci[k].used && index-- == 0) {
                *migDevice = known[c.gpu][wanted] = handle_mig((unsigned)c.gpu, i, k, c.g->gi[i].ci[k].serial);
                return call_end(&c, NVML_SUCCESS);
            }
    if (c.st->host & EMU_STALE && wanted < EMU_MAX_GI * EMU_MAX_CI && known[c.gpu][wanted]) {
        *migDevice = known[c.gpu][wanted]; /* as reported in issue 224 of NVIDIA/libcudacxx */
        return call_end(&c, NVML_SUCCESS);
    }
    return call_end(&c, c.g->mig ? NVML_ERROR_NOT_FOUND : NVML_ERROR_NOT_SUPPORTED);
}

nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int *isMigDevice)
{
    struct call c = CALL(CALL_MIG_DEVICES);
    if (!isMigDevice)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t rc = call_any_device(&c, device);
    if (rc != NVML_SUCCESS)
        return rc;
    *isMigDevice = c.ci != NULL;
    return call_end(&c, rc);
}

nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t migDevice, nvmlDevice_t *device)
{
    struct call c = CALL(CALL_MIG_DEVICES);
    if (!device)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t rc = call_any_device(&c, migDevice);
    if (rc != NVML_SUCCESS)
        return rc;
    *device = handle_gpu((unsigned)c.gpu);
    return call_end(&c, c.ci ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT);
}

static nvmlReturn_t instance_id(nvmlDevice_t device, unsigned int *id, bool ci)
{
    struct call c = CALL(CALL_MIG_DEVICES);
    if (!id)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t rc = call_any_device(&c, device);
    if (rc != NVML_SUCCESS)
        return rc;
    if (!c.ci)
        return call_end(&c, NVML_ERROR_NOT_SUPPORTED);
    *id = (unsigned)(ci ? c.ci_id : c.gi_id);
    return call_end(&c, rc);
}

nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned int *id)
{
    return instance_id(device, id, false);
}

nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned int *id)
{
    return instance_id(device, id, true);
}

nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t *attributes)
{
    struct call c = CALL(CALL_ATTRIBUTES);
    if (!attributes)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t rc = call_any_device(&c, device);
    if (rc != NVML_SUCCESS)
        return rc;
    if (!c.ci)
        return call_end(&c, NVML_ERROR_NOT_SUPPORTED);
    const struct profile *p = rules_profile(c.g, c.gi);
    *attributes = (nvmlDeviceAttributes_t){
        .multiprocessorCount = rules_ci_sms(c.b, c.gi->profile, c.ci->profile) - (quirk(QUIRK_FEW_SMS) ? 2 : 0),
        .sharedCopyEngineCount = p->ce,
        .sharedDecoderCount = p->media[MEDIA_DEC],
        .sharedEncoderCount = p->media[MEDIA_ENC],
        .sharedJpegCount = p->media[MEDIA_JPEG],
        .sharedOfaCount = p->media[MEDIA_OFA],
        .gpuInstanceSliceCount = p->slices,
        .computeInstanceSliceCount = c.ci->slices,
        .memorySizeMB = rules_memory_mib(c.g, c.gi->profile),
    };
    return call_end(&c, rc);
}

nvmlReturn_t nvmlDeviceGetAttributes(nvmlDevice_t device, nvmlDeviceAttributes_t *attributes)
{
    return nvmlDeviceGetAttributes_v2(device, attributes);
}
