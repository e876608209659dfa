/*
 * This program makes the NVML calls of Slurm's gpu/nvml plugin in the plugin's order: first those with which slurmd
 * finds the GPUs, then those that read, set and reset the clocks for --gpu-freq, and those that read the use of a
 * running job. It prints what the plugin would report.
 */
#include <nvml.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CALL(call, ...) check(call(__VA_ARGS__), #call, NVML_SUCCESS)
#define UNSUPPORTED(call, ...) check(call(__VA_ARGS__), #call, NVML_ERROR_NOT_SUPPORTED)

static void check(nvmlReturn_t got, const char *call, nvmlReturn_t want)
{
    if (got == want)
        return;
    fprintf(stderr, "%s: %s, want %s\n", call, nvmlErrorString(got), nvmlErrorString(want));
    exit(1);
}

/* print_links prints the PCI addresses of the GPUs at the other ends of the active links. */
static void print_links(nvmlDevice_t device)
{
    const char *separator = "";
    for (unsigned link = 0; link < NVML_NVLINK_MAX_LINKS; link++) {
        nvmlEnableState_t active;
        nvmlPciInfo_t pci;
        CALL(nvmlDeviceGetNvLinkState, device, link, &active);
        if (active != NVML_FEATURE_ENABLED)
            continue;
        CALL(nvmlDeviceGetNvLinkRemotePciInfo, device, link, &pci);
        printf("%s%s", separator, pci.busIdLegacy);
        separator = ",";
    }
    puts(*separator ? "" : "none");
}

/* find_minors finds the minor numbers of an instance's capability files as the plugin does. */
static void find_minors(unsigned gpu, unsigned gi, unsigned ci, unsigned *gi_minor, unsigned *ci_minor)
{
    char gi_name[64], ci_name[64], name[128];
    unsigned minor;
    FILE *f = fopen("/proc/driver/nvidia-caps/mig-minors", "r");
    if (!f) {
        perror("mig-minors");
        exit(1);
    }
    snprintf(gi_name, sizeof gi_name, "gpu%u/gi%u/access", gpu, gi);
    snprintf(ci_name, sizeof ci_name, "gpu%u/gi%u/ci%u/access", gpu, gi, ci);
    while (fscanf(f, "%127s%u", name, &minor) == 2) {
        if (strcmp(name, gi_name) == 0)
            *gi_minor = minor;
        if (strcmp(name, ci_name) == 0)
            *ci_minor = minor;
    }
    fclose(f);
}

static void print_mig_devices(nvmlDevice_t gpu, unsigned minor)
{
    unsigned most;
    CALL(nvmlDeviceGetMaxMigDeviceCount, gpu, &most);
    for (unsigned i = 0; i < most; i++) {
        nvmlDevice_t mig;
        unsigned gi, ci, gi_minor = 0, ci_minor = 0;
        char uuid[NVML_DEVICE_UUID_V2_BUFFER_SIZE];
        nvmlDeviceAttributes_t attributes;
        nvmlReturn_t rc = nvmlDeviceGetMigDeviceHandleByIndex(gpu, i, &mig);
        if (rc == NVML_ERROR_NOT_FOUND)
            continue;
        check(rc, "nvmlDeviceGetMigDeviceHandleByIndex", NVML_SUCCESS);
        CALL(nvmlDeviceGetGpuInstanceId, mig, &gi);
        CALL(nvmlDeviceGetComputeInstanceId, mig, &ci);
        CALL(nvmlDeviceGetUUID, mig, uuid, sizeof uuid);
        find_minors(minor, gi, ci, &gi_minor, &ci_minor);
        CALL(nvmlDeviceGetAttributes, mig, &attributes);
        printf("mig %s caps=%u,%u slices=%u memory=%llu\n", uuid, gi_minor, ci_minor, attributes.gpuInstanceSliceCount,
               (unsigned long long)attributes.memorySizeMB);
    }
}

static void print_gpu(nvmlDevice_t gpu)
{
    unsigned minor, mode = NVML_DEVICE_MIG_DISABLE, pending;
    unsigned long cpus[16];
    char name[NVML_DEVICE_NAME_V2_BUFFER_SIZE], uuid[NVML_DEVICE_UUID_V2_BUFFER_SIZE];
    nvmlPciInfo_t pci;
    CALL(nvmlDeviceGetName, gpu, name, sizeof name);
    CALL(nvmlDeviceGetUUID, gpu, uuid, sizeof uuid);
    CALL(nvmlDeviceGetMinorNumber, gpu, &minor);
    CALL(nvmlDeviceGetPciInfo, gpu, &pci);
    CALL(nvmlDeviceGetCpuAffinity, gpu, 16, cpus);
    if (!(cpus[0] & 1)) {
        fprintf(stderr, "the GPU has no affinity to CPU 0\n");
        exit(1);
    }
    printf("gpu %s file=/dev/nvidia%u pci=%s links=", name, minor, pci.busIdLegacy);
    print_links(gpu);
    CALL(nvmlDeviceGetMigMode, gpu, &mode, &pending);
    if (mode == NVML_DEVICE_MIG_ENABLE)
        print_mig_devices(gpu, minor);
}

/* try_clocks makes the calls for --gpu-freq. The plugin logs NOT_SUPPORTED as an error and goes on. */
static void try_clocks(nvmlDevice_t gpu)
{
    unsigned count = 16, clocks[16], clock;
    UNSUPPORTED(nvmlDeviceGetSupportedMemoryClocks, gpu, &count, clocks);
    UNSUPPORTED(nvmlDeviceGetSupportedGraphicsClocks, gpu, 1, &count, clocks);
    UNSUPPORTED(nvmlDeviceGetClockInfo, gpu, NVML_CLOCK_GRAPHICS, &clock);
    UNSUPPORTED(nvmlDeviceGetApplicationsClock, gpu, NVML_CLOCK_MEM, &clock);
    UNSUPPORTED(nvmlDeviceSetMemoryLockedClocks, gpu, 1, 1);
    UNSUPPORTED(nvmlDeviceSetGpuLockedClocks, gpu, 1, 1);
    UNSUPPORTED(nvmlDeviceSetApplicationsClocks, gpu, 1, 1);
    UNSUPPORTED(nvmlDeviceResetMemoryLockedClocks, gpu);
    UNSUPPORTED(nvmlDeviceResetGpuLockedClocks, gpu);
    UNSUPPORTED(nvmlDeviceResetApplicationsClocks, gpu);
}

static void read_use(nvmlDevice_t gpu)
{
    unsigned count = 0, mode, pending;
    CALL(nvmlDeviceGetComputeRunningProcesses, gpu, &count, NULL);
    CALL(nvmlDeviceGetMigMode, gpu, &mode, &pending);
    check(nvmlDeviceGetProcessUtilization(gpu, NULL, &count, 0), "nvmlDeviceGetProcessUtilization",
          mode == NVML_DEVICE_MIG_ENABLE ? NVML_ERROR_NOT_SUPPORTED : NVML_ERROR_NOT_FOUND);
}

int main(void)
{
    char text[NVML_SYSTEM_NVML_VERSION_BUFFER_SIZE];
    unsigned count;
    CALL(nvmlInit);
    CALL(nvmlSystemGetDriverVersion, text, sizeof text);
    CALL(nvmlSystemGetNVMLVersion, text, sizeof text);
    CALL(nvmlDeviceGetCount, &count);
    for (unsigned i = 0; i < count; i++) {
        nvmlDevice_t gpu;
        CALL(nvmlDeviceGetHandleByIndex, i, &gpu);
        print_gpu(gpu);
        try_clocks(gpu);
        read_use(gpu);
    }
    CALL(nvmlShutdown);
    return 0;
}
