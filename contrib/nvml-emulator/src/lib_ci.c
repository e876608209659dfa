/*
 * This file implements the calls for compute instances. Their profile ids are the NVML_COMPUTE_INSTANCE_PROFILE_*
 * numbers, as on an A100. The driver carries out most of them through a subscription to the GPU instance, for which the
 * caller must be able to open the GPU instance's capability file, even if it is root (gpu_instance_subscription.c in
 * NVIDIA's open kernel modules 595.45.04).
 */
#include <stdio.h>
#include <string.h>

#include "lib.h"

/* Newer drivers also have 7_SLICE_NVL, whose number is the first one that nvml.h does not know. No GPU model is known to
 * have this profile. */
#define CI_PROFILES (NVML_COMPUTE_INSTANCE_PROFILE_1_SLICE_REV1 + 2)

static void fill_v3(const struct call *c, unsigned profile, unsigned slices, nvmlComputeInstanceProfileInfo_v3_t *info)
{
    const struct profile *p = rules_profile(c->g, c->gi);
    unsigned starts[8];
    *info = (nvmlComputeInstanceProfileInfo_v3_t){
        .version = nvmlComputeInstanceProfileInfo_v3,
        .id = profile,
        .sliceCount = slices,
        .instanceCount = rules_ci_starts(p->slices, profile, starts),
        .multiprocessorCount = rules_ci_sms(c->b, c->gi->profile, profile),
        .sharedCopyEngineCount = p->ce,
        .sharedDecoderCount = p->media[MEDIA_DEC],
        .sharedEncoderCount = p->media[MEDIA_ENC],
        .sharedJpegCount = p->media[MEDIA_JPEG],
        .sharedOfaCount = p->media[MEDIA_OFA],
        .capabilities = p->gfx ? NVML_COMPUTE_INSTANCE_PROFILE_CAPS_GFX : 0,
    };
    if (slices == p->slices)
        snprintf(info->name, sizeof info->name, "MIG %s", rules_name(c->g, c->gi->profile));
    else
        snprintf(info->name, sizeof info->name, "MIG %uc.%s", slices, rules_name(c->g, c->gi->profile));
}

/*
 * begin_profile begins a call for a CI profile of a GPU instance. If the GPU instance does not have the profile, it
 * ends the call and returns an error.
 */
static nvmlReturn_t begin_profile(struct call *c, nvmlGpuInstance_t gi, unsigned profile, unsigned *slices)
{
    nvmlReturn_t rc = call_gi(c, gi);
    if (rc != NVML_SUCCESS)
        return rc;
    *slices = rules_ci_slices(c->b, c->gi->profile, profile);
    return *slices ? NVML_SUCCESS : call_end(c, NVML_ERROR_NOT_SUPPORTED);
}

static nvmlReturn_t profile_info(nvmlGpuInstance_t gi, unsigned profile, unsigned engProfile, nvmlComputeInstanceProfileInfo_v3_t *v3)
{
    struct call c = CALL(CALL_PROFILES);
    unsigned slices;
    if (profile >= CI_PROFILES || engProfile >= NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_COUNT)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t rc = begin_profile(&c, gi, profile, &slices);
    if (rc != NVML_SUCCESS)
        return rc;
    fill_v3(&c, profile, slices, v3);
    return call_end(&c, rc);
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfo(nvmlGpuInstance_t gpuInstance, unsigned int profile,
                                                          unsigned int engProfile, nvmlComputeInstanceProfileInfo_t *info)
{
    nvmlComputeInstanceProfileInfo_v3_t v3;
    if (!info)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t rc = profile_info(gpuInstance, profile, engProfile, &v3);
    if (rc == NVML_SUCCESS)
        *info = (nvmlComputeInstanceProfileInfo_t){
            .id = v3.id,
            .sliceCount = v3.sliceCount,
            .instanceCount = v3.instanceCount,
            .multiprocessorCount = v3.multiprocessorCount,
            .sharedCopyEngineCount = v3.sharedCopyEngineCount,
            .sharedDecoderCount = v3.sharedDecoderCount,
            .sharedEncoderCount = v3.sharedEncoderCount,
            .sharedJpegCount = v3.sharedJpegCount,
            .sharedOfaCount = v3.sharedOfaCount,
        };
    return rc;
}

/* Version 3 of the structure is version 2 with an additional field at the end. */
_Static_assert(offsetof(nvmlComputeInstanceProfileInfo_v3_t, capabilities) >=
                   offsetof(nvmlComputeInstanceProfileInfo_v2_t, name) + NVML_DEVICE_NAME_V2_BUFFER_SIZE,
               "v3 extends v2");

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfoV(nvmlGpuInstance_t gpuInstance, unsigned int profile,
                                                           unsigned int engProfile, nvmlComputeInstanceProfileInfo_v2_t *info)
{
    nvmlComputeInstanceProfileInfo_v3_t v3;
    if (!info || (info->version != nvmlComputeInstanceProfileInfo_v2 && info->version != nvmlComputeInstanceProfileInfo_v3))
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t rc = profile_info(gpuInstance, profile, engProfile, &v3);
    if (rc != NVML_SUCCESS)
        return rc;
    v3.version = info->version;
    memcpy(info, &v3, info->version == nvmlComputeInstanceProfileInfo_v3 ? sizeof v3 : sizeof *info);
    return rc;
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstancePossiblePlacements(nvmlGpuInstance_t gpuInstance, unsigned int profileId,
                                                                 nvmlComputeInstancePlacement_t *placements, unsigned int *count)
{
    struct call c = CALL(CALL_PLACEMENTS);
    unsigned slices, starts[8];
    c.root = c.subscribes = true;
    if (!count)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t rc = begin_profile(&c, gpuInstance, profileId, &slices);
    if (rc != NVML_SUCCESS)
        return rc;
    unsigned n = rules_ci_starts(rules_profile(c.g, c.gi)->slices, profileId, starts);
    if (placements && *count < n)
        rc = NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned i = 0; placements && rc == NVML_SUCCESS && i < n; i++)
        placements[i] = (nvmlComputeInstancePlacement_t){.start = starts[i], .size = slices};
    *count = n;
    return call_end(&c, rc);
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceRemainingCapacity(nvmlGpuInstance_t gpuInstance, unsigned int profileId,
                                                                unsigned int *count)
{
    struct call c = CALL(CALL_CAPACITY);
    unsigned slices;
    c.root = c.subscribes = true;
    if (!count)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t rc = begin_profile(&c, gpuInstance, profileId, &slices);
    if (rc != NVML_SUCCESS)
        return rc;
    *count = rules_ci_capacity(c.gi, rules_profile(c.g, c.gi)->slices, profileId);
    return call_end(&c, rc);
}

static nvmlReturn_t create(nvmlGpuInstance_t gi, unsigned profileId, const nvmlComputeInstancePlacement_t *at, nvmlComputeInstance_t *out)
{
    struct call c = CALL(CALL_CREATE_CI);
    unsigned slices, id;
    c.write = c.root = c.subscribes = true;
    c.event = EVENT("create-ci");
    nvmlReturn_t rc = begin_profile(&c, gi, profileId, &slices);
    if (rc != NVML_SUCCESS)
        return rc;
    if (at && (at->size != slices || at->start > EMU_MAX_CI))
        return call_end(&c, NVML_ERROR_INVALID_ARGUMENT);
    rc = ops_create_ci(&c.t, (unsigned)c.gpu, (unsigned)c.gi_id, profileId, at ? (int)at->start : -1, &id);
    if (rc != NVML_SUCCESS)
        return call_end(&c, rc);
    c.event.ci = (int)id;
    c.event.uuid = c.gi->ci[id].uuid;
    *out = handle_ci((unsigned)c.gpu, (unsigned)c.gi_id, id, c.gi->ci[id].serial);
    return call_end(&c, rc);
}

nvmlReturn_t nvmlGpuInstanceCreateComputeInstance(nvmlGpuInstance_t gpuInstance, unsigned int profileId,
                                                  nvmlComputeInstance_t *computeInstance)
{
    return computeInstance ? create(gpuInstance, profileId, NULL, computeInstance) : NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t nvmlGpuInstanceCreateComputeInstanceWithPlacement(nvmlGpuInstance_t gpuInstance, unsigned int profileId,
                                                               const nvmlComputeInstancePlacement_t *placement,
                                                               nvmlComputeInstance_t *computeInstance)
{
    return placement && computeInstance ? create(gpuInstance, profileId, placement, computeInstance) : NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t nvmlComputeInstanceDestroy(nvmlComputeInstance_t computeInstance)
{
    struct call c = CALL(CALL_DESTROY_CI);
    c.write = c.root = c.subscribes = true;
    c.event = EVENT("destroy-ci");
    nvmlReturn_t rc = call_ci(&c, computeInstance);
    if (rc != NVML_SUCCESS)
        return rc;
    uint8_t uuid[16];
    memcpy(uuid, c.ci->uuid, sizeof uuid);
    c.event.uuid = uuid;
    return call_end(&c, ops_destroy_ci(&c.t, (unsigned)c.gpu, (unsigned)c.gi_id, (unsigned)c.ci_id));
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstances(nvmlGpuInstance_t gpuInstance, unsigned int profileId,
                                                nvmlComputeInstance_t *computeInstances, unsigned int *count)
{
    struct call c = CALL(CALL_LIST_CI);
    unsigned slices;
    c.root = c.subscribes = true;
    if (!computeInstances || !count)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t rc = begin_profile(&c, gpuInstance, profileId, &slices);
    if (rc != NVML_SUCCESS)
        return rc;
    *count = 0;
    for (unsigned i = 0; i < EMU_MAX_CI; i++)
        if (c.gi->ci[i].used && c.gi->ci[i].profile == profileId)
            computeInstances[(*count)++] = handle_ci((unsigned)c.gpu, (unsigned)c.gi_id, i, c.gi->ci[i].serial);
    return call_end(&c, rc);
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceById(nvmlGpuInstance_t gpuInstance, unsigned int id, nvmlComputeInstance_t *computeInstance)
{
    struct call c = CALL(CALL_LIST_CI);
    c.root = c.subscribes = true;
    if (!computeInstance)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t rc = call_gi(&c, gpuInstance);
    if (rc != NVML_SUCCESS)
        return rc;
    if (id >= EMU_MAX_CI || !c.gi->ci[id].used)
        return call_end(&c, NVML_ERROR_NOT_FOUND);
    *computeInstance = handle_ci((unsigned)c.gpu, (unsigned)c.gi_id, id, c.gi->ci[id].serial);
    return call_end(&c, rc);
}

nvmlReturn_t nvmlComputeInstanceGetInfo_v2(nvmlComputeInstance_t computeInstance, nvmlComputeInstanceInfo_t *info)
{
    struct call c = CALL(CALL_CI_INFO);
    c.subscribes = true;
    if (!info)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t rc = call_ci(&c, computeInstance);
    if (rc != NVML_SUCCESS)
        return rc;
    *info = (nvmlComputeInstanceInfo_t){
        .device = handle_gpu((unsigned)c.gpu),
        .gpuInstance = handle_gi((unsigned)c.gpu, (unsigned)c.gi_id, c.gi->serial),
        .id = (unsigned)c.ci_id,
        .profileId = c.ci->profile,
        .placement = {.start = c.ci->start, .size = c.ci->slices},
    };
    return call_end(&c, rc);
}

nvmlReturn_t nvmlComputeInstanceGetInfo(nvmlComputeInstance_t computeInstance, nvmlComputeInstanceInfo_t *info)
{
    return nvmlComputeInstanceGetInfo_v2(computeInstance, info);
}
