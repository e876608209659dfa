#include "fuzz.h"

#include <string.h>

#include "../../src/names.h"

/* This file declares the versioned names, because board.h sets NVML_NO_UNVERSIONED_FUNC_DEFS. */
nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count);
nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device);

static void identity(nvmlDevice_t d)
{
    char text[96];
    unsigned n, pending, isMig;
    unsigned long long types;
    nvmlMemory_t memory;
    nvmlMemory_v2_t memory2 = {.version = nvmlMemory_v2};
    nvmlUtilization_t utilization;
    nvmlPciInfo_t pci;
    nvmlDeviceAttributes_t attributes;
    nvmlDevice_t other;
    nvmlProcessInfo_t few[4], *many;

    if (nvmlDeviceGetName(d, text, sizeof text) == NVML_SUCCESS)
        must(memchr(text, '\0', sizeof text));
    if (nvmlDeviceGetUUID(d, text, sizeof text) == NVML_SUCCESS)
        nvmlDeviceGetHandleByUUID(text, &other);
    if (nvmlDeviceGetMemoryInfo(d, &memory) == NVML_SUCCESS)
        must(memory.used <= memory.total);
    nvmlDeviceGetMemoryInfo_v2(d, &memory2);
    nvmlDeviceGetUtilizationRates(d, &utilization);
    nvmlDeviceGetPciInfo_v3(d, &pci);
    nvmlDeviceGetAttributes_v2(d, &attributes);
    nvmlDeviceGetIndex(d, &n);
    nvmlDeviceGetMigMode(d, &n, &pending);
    nvmlDeviceIsMigDeviceHandle(d, &isMig);
    nvmlDeviceGetDeviceHandleFromMigDeviceHandle(d, &other);
    nvmlDeviceGetGpuInstanceId(d, &n);
    nvmlDeviceGetComputeInstanceId(d, &n);
    nvmlDeviceGetSupportedEventTypes(d, &types);
    n = 4;
    if (nvmlDeviceGetComputeRunningProcesses_v3(d, &n, few) == NVML_ERROR_INSUFFICIENT_SIZE) {
        many = malloc(n * sizeof *many);
        nvmlDeviceGetComputeRunningProcesses_v3(d, &n, many);
        free(many);
    }
}

static void events(nvmlDevice_t d)
{
    nvmlEventSet_t set;
    nvmlEventData_t data;
    must(nvmlEventSetCreate(&set) == NVML_SUCCESS);
    nvmlDeviceRegisterEvents(d, nvmlEventTypeXidCriticalError, set);
    nvmlEventSetWait_v2(set, &data, 0);
    nvmlEventSetFree(set);
}

static void profiles(nvmlDevice_t d)
{
    for (unsigned p = 0; p < NVML_GPU_INSTANCE_PROFILE_COUNT; p++) {
        nvmlGpuInstanceProfileInfo_v3_t v3 = {.version = nvmlGpuInstanceProfileInfo_v3};
        nvmlGpuInstancePlacement_t *places;
        unsigned n = 0;
        if (nvmlDeviceGetGpuInstanceProfileInfoV(d, p, (nvmlGpuInstanceProfileInfo_v2_t *)&v3) != NVML_SUCCESS)
            continue;
        must(memchr(v3.name, '\0', sizeof v3.name));
        nvmlDeviceGetGpuInstancePossiblePlacements_v2(d, v3.id, NULL, &n);
        places = malloc(n * sizeof *places + 1);
        nvmlDeviceGetGpuInstancePossiblePlacements_v2(d, v3.id, places, &n);
        free(places);
        if (nvmlDeviceGetGpuInstanceRemainingCapacity(d, v3.id, &n) == NVML_SUCCESS)
            must(n <= v3.instanceCount);
    }
}

static void use_compute_instances(nvmlGpuInstance_t gi)
{
    for (unsigned p = 0; p < NVML_COMPUTE_INSTANCE_PROFILE_COUNT; p++) {
        nvmlComputeInstanceProfileInfo_v3_t v3 = {.version = nvmlComputeInstanceProfileInfo_v3};
        nvmlComputeInstancePlacement_t places[8];
        nvmlComputeInstance_t *all, made;
        nvmlComputeInstanceInfo_t info;
        unsigned n = 8;
        if (nvmlGpuInstanceGetComputeInstanceProfileInfoV(gi, p, 0, (nvmlComputeInstanceProfileInfo_v2_t *)&v3) != NVML_SUCCESS)
            continue;
        nvmlGpuInstanceGetComputeInstancePossiblePlacements(gi, p, places, &n);
        if (nvmlGpuInstanceGetComputeInstanceRemainingCapacity(gi, p, &n) == NVML_SUCCESS)
            must(n <= v3.instanceCount);
        all = malloc(v3.instanceCount * sizeof *all + 1); /* NVML requires room for instanceCount entries */
        if (nvmlGpuInstanceGetComputeInstances(gi, p, all, &n) == NVML_SUCCESS)
            for (unsigned i = 0; i < n; i++)
                nvmlComputeInstanceGetInfo_v2(all[i], &info);
        free(all);
        if (nvmlGpuInstanceCreateComputeInstance(gi, p, &made) == NVML_SUCCESS)
            nvmlComputeInstanceDestroy(made);
    }
}

static void instances(nvmlDevice_t d)
{
    for (unsigned p = 0; p < NVML_GPU_INSTANCE_PROFILE_COUNT; p++) {
        nvmlGpuInstanceProfileInfo_t profile;
        nvmlGpuInstance_t *all, made;
        nvmlGpuInstanceInfo_t info;
        unsigned n = 0;
        if (nvmlDeviceGetGpuInstanceProfileInfo(d, p, &profile) != NVML_SUCCESS)
            continue;
        all = malloc(profile.instanceCount * sizeof *all + 1);
        if (nvmlDeviceGetGpuInstances(d, profile.id, all, &n) != NVML_SUCCESS)
            n = 0;
        for (unsigned i = 0; i < n; i++) {
            nvmlGpuInstanceGetInfo(all[i], &info);
            use_compute_instances(all[i]);
        }
        if (n)
            nvmlGpuInstanceDestroy(all[0]);
        free(all);
        if (nvmlDeviceCreateGpuInstance(d, profile.id, &made) == NVML_SUCCESS)
            nvmlGpuInstanceDestroy(made);
    }
}

static void utilization(nvmlDevice_t d)
{
    nvmlGpmSample_t sample;
    if (nvmlGpmSampleAlloc(&sample) != NVML_SUCCESS)
        return;
    for (unsigned gi = 0; gi < 16; gi++) {
        nvmlGpmMetricsGet_t get = {.version = NVML_GPM_METRICS_GET_VERSION, .numMetrics = 1, .sample1 = sample, .sample2 = sample};
        get.metrics[0].metricId = NVML_GPM_METRIC_SM_UTIL;
        if (nvmlGpmMigSampleGet(d, gi, sample) == NVML_SUCCESS)
            must(nvmlGpmMetricsGet(&get) == NVML_SUCCESS && get.metrics[0].value <= 100);
    }
    nvmlGpmSampleFree(sample);
}

static void modes(nvmlDevice_t d)
{
    unsigned current, pending, n, other;
    nvmlReturn_t activation;
    nvmlGpuP2PStatus_t p2p;
    nvmlDevice_t peer;
    if (nvmlDeviceGetMigMode(d, &current, &pending) != NVML_SUCCESS)
        return;
    must(current <= 1 && pending <= 1);
    nvmlDeviceSetMigMode(d, !current, &activation);
    nvmlDeviceSetMigMode(d, current, &activation);
    if (nvmlDeviceGetIndex(d, &n) == NVML_SUCCESS)
        for (other = 0; other < 16; other++)
            if (nvmlDeviceGetHandleByIndex_v2(other, &peer) == NVML_SUCCESS &&
                nvmlDeviceGetP2PStatus(d, peer, NVML_P2P_CAPS_INDEX_NVLINK, &p2p) == NVML_SUCCESS)
                must(other != n);
}

static void mig_devices(nvmlDevice_t d)
{
    unsigned n;
    nvmlDevice_t mig;
    if (nvmlDeviceGetMaxMigDeviceCount(d, &n) != NVML_SUCCESS)
        return;
    for (unsigned i = 0; i < n; i++)
        if (nvmlDeviceGetMigDeviceHandleByIndex(d, i, &mig) == NVML_SUCCESS)
            identity(mig);
    utilization(d);
}

int use_library(void *which)
{
    uint8_t byte = *(const uint8_t *)which;
    unsigned n;
    nvmlDevice_t d;
    while (nvmlShutdown() == NVML_SUCCESS) /* a killed client has not called nvmlShutdown */
        ;
    if (nvmlInit_v2() != NVML_SUCCESS || nvmlDeviceGetCount_v2(&n) != NVML_SUCCESS)
        return 1;
    must(n <= 16);
    if (n == 0 || nvmlDeviceGetHandleByIndex_v2(byte % 16 % n, &d) != NVML_SUCCESS)
        return 1;
    switch (byte / 16 % 4) {
    case 0:
        identity(d);
        events(d);
        modes(d);
        break;
    case 1: profiles(d); break;
    case 2: instances(d); break;
    default: mig_devices(d);
    }
    nvmlShutdown();
    return 0;
}
