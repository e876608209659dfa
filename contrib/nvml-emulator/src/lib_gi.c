/*
 * This file implements the calls for GPU instances: profiles, placements, capacity, creation, destruction and
 * enumeration.
 */
#include <stdio.h>
#include <string.h>

#include "lib.h"
#include "quirk.h"

/* known reports whether this release of the library knows a profile number; a newer one may know more than nvml.h. */
static bool known(const struct call *c, unsigned profile)
{
    return profile < NVML_GPU_INSTANCE_PROFILE_COUNT || rules_profile_by_nvml(c->b, profile) >= 0;
}

/* MIG slices do not support P2P, so isP2pSupported is 0 for every profile. */
static void fill_v3(const struct gpu_state *g, int profile, nvmlGpuInstanceProfileInfo_v3_t *info)
{
    const struct profile *p = &rules_board(g)->profiles[profile];
    *info = (nvmlGpuInstanceProfileInfo_v3_t){
        .version = nvmlGpuInstanceProfileInfo_v3,
        .id = p->id,
        .sliceCount = p->slices,
        .instanceCount = p->limit + quirk(QUIRK_COUNTS),
        .multiprocessorCount = p->sms,
        .copyEngineCount = p->ce,
        .decoderCount = p->media[MEDIA_DEC],
        .encoderCount = p->media[MEDIA_ENC],
        .jpegCount = p->media[MEDIA_JPEG],
        .ofaCount = p->media[MEDIA_OFA],
        .memorySizeMB = rules_memory_mib(g, profile),
        .capabilities = p->gfx ? NVML_GPU_INSTANCE_PROFILE_CAPS_GFX : 0,
    };
    snprintf(info->name, sizeof info->name, "MIG %s", rules_name(g, profile));
}

static void fill_v2(const nvmlGpuInstanceProfileInfo_v3_t *v3, nvmlGpuInstanceProfileInfo_v2_t *info)
{
    *info = (nvmlGpuInstanceProfileInfo_v2_t){
        .version = nvmlGpuInstanceProfileInfo_v2,
        .id = v3->id,
        .sliceCount = v3->sliceCount,
        .instanceCount = v3->instanceCount,
        .multiprocessorCount = v3->multiprocessorCount,
        .copyEngineCount = v3->copyEngineCount,
        .decoderCount = v3->decoderCount,
        .encoderCount = v3->encoderCount,
        .jpegCount = v3->jpegCount,
        .ofaCount = v3->ofaCount,
        .memorySizeMB = v3->memorySizeMB,
    };
    memcpy(info->name, v3->name, sizeof info->name);
}

nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfo(nvmlDevice_t device, unsigned int profile, nvmlGpuInstanceProfileInfo_t *info)
{
    struct call c = CALL(CALL_PROFILES);
    if (!info)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t rc = call_gpu(&c, device);
    if (rc != NVML_SUCCESS)
        return rc;
    if (!known(&c, profile))
        return call_end(&c, NVML_ERROR_INVALID_ARGUMENT);
    int i = rules_profile_by_nvml(c.b, profile);
    if (i < 0)
        return call_end(&c, NVML_ERROR_NOT_SUPPORTED);
    nvmlGpuInstanceProfileInfo_v3_t v3;
    fill_v3(c.g, i, &v3);
    *info = (nvmlGpuInstanceProfileInfo_t){
        .id = v3.id,
        .sliceCount = v3.sliceCount,
        .instanceCount = v3.instanceCount,
        .multiprocessorCount = v3.multiprocessorCount,
        .copyEngineCount = v3.copyEngineCount,
        .decoderCount = v3.decoderCount,
        .encoderCount = v3.encoderCount,
        .jpegCount = v3.jpegCount,
        .ofaCount = v3.ofaCount,
        .memorySizeMB = v3.memorySizeMB,
    };
    return call_end(&c, rc);
}

static nvmlReturn_t profile_info(nvmlDevice_t device, unsigned number, bool by_id, nvmlGpuInstanceProfileInfo_v2_t *info)
{
    struct call c = CALL(CALL_PROFILES);
    if (!info || (info->version != nvmlGpuInstanceProfileInfo_v2 && info->version != nvmlGpuInstanceProfileInfo_v3))
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t rc = call_gpu(&c, device);
    if (rc != NVML_SUCCESS)
        return rc;
    if (!by_id && !known(&c, number))
        return call_end(&c, NVML_ERROR_INVALID_ARGUMENT);
    int i = by_id ? rules_profile_by_id(c.b, number) : rules_profile_by_nvml(c.b, number);
    if (i < 0 || !c.g->mig)
        return call_end(&c, NVML_ERROR_NOT_SUPPORTED);
    nvmlGpuInstanceProfileInfo_v3_t v3;
    fill_v3(c.g, i, &v3);
    if (info->version == nvmlGpuInstanceProfileInfo_v3)
        memcpy(info, &v3, sizeof v3);
    else
        fill_v2(&v3, info);
    return call_end(&c, rc);
}

nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfoV(nvmlDevice_t device, unsigned int profile, nvmlGpuInstanceProfileInfo_v2_t *info)
{
    return profile_info(device, profile, false, info);
}

nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfoByIdV(nvmlDevice_t device, unsigned int profileId,
                                                      nvmlGpuInstanceProfileInfo_v2_t *info)
{
    return profile_info(device, profileId, true, info);
}

/* The call returns all placements of the profile, including occupied ones, even if MIG mode is off. */
nvmlReturn_t nvmlDeviceGetGpuInstancePossiblePlacements_v2(nvmlDevice_t device, unsigned int profileId,
                                                           nvmlGpuInstancePlacement_t *placements, unsigned int *count)
{
    struct call c = CALL(CALL_PLACEMENTS);
    c.root = true;
    if (!count)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t rc = call_gpu(&c, device);
    if (rc != NVML_SUCCESS)
        return rc;
    int i = rules_profile_by_id(c.b, profileId);
    if (i < 0)
        return call_end(&c, NVML_ERROR_NOT_SUPPORTED);
    const struct profile *p = &c.b->profiles[i];
    if (placements && *count < p->nstarts)
        rc = NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned k = 0; placements && rc == NVML_SUCCESS && k < p->nstarts; k++)
        placements[k] = (nvmlGpuInstancePlacement_t){.start = p->starts[k], .size = p->size};
    *count = p->nstarts;
    return call_end(&c, rc);
}

nvmlReturn_t nvmlDeviceGetGpuInstancePossiblePlacements(nvmlDevice_t device, unsigned int profileId,
                                                        nvmlGpuInstancePlacement_t *placements, unsigned int *count)
{
    return nvmlDeviceGetGpuInstancePossiblePlacements_v2(device, profileId, placements, count);
}

nvmlReturn_t nvmlDeviceGetGpuInstanceRemainingCapacity(nvmlDevice_t device, unsigned int profileId, unsigned int *count)
{
    struct call c = CALL(CALL_CAPACITY);
    c.root = true;
    if (!count)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t rc = call_gpu(&c, device);
    if (rc != NVML_SUCCESS)
        return rc;
    int i = rules_profile_by_id(c.b, profileId);
    if (i < 0 || !c.g->mig)
        return call_end(&c, NVML_ERROR_NOT_SUPPORTED);
    *count = rules_capacity(c.g, i);
    return call_end(&c, rc);
}

static nvmlReturn_t create(nvmlDevice_t device, unsigned profileId, const nvmlGpuInstancePlacement_t *at, nvmlGpuInstance_t *out)
{
    struct call c = CALL(CALL_CREATE_GI);
    c.write = c.root = c.config = true;
    c.profile = (int)profileId;
    c.event = EVENT("create-gi");
    if (at) {
        c.event.start = (int)at->start;
        c.event.size = (int)at->size;
    }
    nvmlReturn_t rc = call_gpu(&c, device);
    if (rc != NVML_SUCCESS)
        return rc;
    int profile = rules_profile_by_id(c.b, profileId);
    if (profile < 0 || (at && (at->size != c.b->profiles[profile].size || at->start > c.b->grid)))
        return call_end(&c, c.g->mig ? NVML_ERROR_INVALID_ARGUMENT : NVML_ERROR_NOT_SUPPORTED);
    unsigned id;
    rc = ops_create_gi(&c.t, (unsigned)c.gpu, profile, at ? (int)at->start : -1, &id);
    if (rc != NVML_SUCCESS)
        return call_end(&c, rc);
    const struct gi_state *gi = &c.g->gi[id];
    lib_created(gi->serial);
    c.event.gi = (int)id;
    c.event.start = gi->start;
    c.event.size = gi->size;
    *out = handle_gi((unsigned)c.gpu, id, gi->serial);
    return call_end(&c, rc);
}

nvmlReturn_t nvmlDeviceCreateGpuInstance(nvmlDevice_t device, unsigned int profileId, nvmlGpuInstance_t *gpuInstance)
{
    return gpuInstance ? create(device, profileId, NULL, gpuInstance) : NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t nvmlDeviceCreateGpuInstanceWithPlacement(nvmlDevice_t device, unsigned int profileId,
                                                      const nvmlGpuInstancePlacement_t *placement, nvmlGpuInstance_t *gpuInstance)
{
    return placement && gpuInstance ? create(device, profileId, placement, gpuInstance) : NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t nvmlGpuInstanceDestroy(nvmlGpuInstance_t gpuInstance)
{
    struct call c = CALL(CALL_DESTROY_GI);
    c.write = c.root = c.config = true;
    c.event = EVENT("destroy-gi");
    nvmlReturn_t rc = call_gi(&c, gpuInstance);
    if (rc != NVML_SUCCESS)
        return rc;
    return call_end(&c, ops_destroy_gi(&c.t, (unsigned)c.gpu, (unsigned)c.gi_id));
}

nvmlReturn_t nvmlDeviceGetGpuInstances(nvmlDevice_t device, unsigned int profileId, nvmlGpuInstance_t *gpuInstances,
                                       unsigned int *count)
{
    struct call c = CALL(CALL_LIST_GI);
    c.root = true;
    if (!gpuInstances || !count)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t rc = call_gpu(&c, device);
    if (rc != NVML_SUCCESS)
        return rc;
    int profile = rules_profile_by_id(c.b, profileId);
    if (!c.g->mig || profile < 0)
        return call_end(&c, c.g->mig ? NVML_ERROR_INVALID_ARGUMENT : NVML_ERROR_NOT_SUPPORTED);
    /* According to NVML's documentation, the buffer has room for instanceCount instances, and *count is not an
     * input. */
    *count = 0;
    for (unsigned i = 0; i < EMU_MAX_GI; i++)
        if (c.g->gi[i].used && c.g->gi[i].profile == profile && (!quirk(QUIRK_STALE_LIST) || lib_knows(c.g->gi[i].serial)))
            gpuInstances[(*count)++] = handle_gi((unsigned)c.gpu, i, c.g->gi[i].serial);
    return call_end(&c, rc);
}

nvmlReturn_t nvmlDeviceGetGpuInstanceById(nvmlDevice_t device, unsigned int id, nvmlGpuInstance_t *gpuInstance)
{
    struct call c = CALL(CALL_LIST_GI);
    c.root = true;
    if (!gpuInstance)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t rc = call_gpu(&c, device);
    if (rc != NVML_SUCCESS)
        return rc;
    if (!c.g->mig)
        return call_end(&c, NVML_ERROR_NOT_SUPPORTED);
    if (id >= EMU_MAX_GI || !c.g->gi[id].used)
        return call_end(&c, NVML_ERROR_NOT_FOUND);
    *gpuInstance = handle_gi((unsigned)c.gpu, id, c.g->gi[id].serial);
    return call_end(&c, rc);
}

nvmlReturn_t nvmlGpuInstanceGetInfo(nvmlGpuInstance_t gpuInstance, nvmlGpuInstanceInfo_t *info)
{
    struct call c = CALL(CALL_GI_INFO);
    if (!info)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t rc = call_gi(&c, gpuInstance);
    if (rc != NVML_SUCCESS)
        return rc;
    *info = (nvmlGpuInstanceInfo_t){
        .device = handle_gpu((unsigned)c.gpu),
        .id = (unsigned)c.gi_id,
        .profileId = rules_profile(c.g, c.gi)->id,
        .placement = {.start = c.gi->start, .size = c.gi->size},
    };
    return call_end(&c, rc);
}
