/* This file implements queries about a GPU or a MIG device: identity, memory, processes and utilization. */
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "cgroup.h"
#include "lib.h"
#include "quirk.h"

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
    return lib_initialized() ? lib_copy(version, length, lib_driver_version()) : NVML_ERROR_UNINITIALIZED;
}

nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length)
{
    char text[64];
    snprintf(text, sizeof text, "13.%s", lib_driver_version());
    return lib_initialized() ? lib_copy(version, length, text) : NVML_ERROR_UNINITIALIZED;
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version)
{
    if (!lib_initialized())
        return NVML_ERROR_UNINITIALIZED;
    if (!version)
        return NVML_ERROR_INVALID_ARGUMENT;
    *version = atoi(lib_driver_version()) < EMU_LIMITS_RELEASE ? 13010 : 13040;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    return nvmlSystemGetCudaDriverVersion(version);
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count)
{
    struct call c = CALL(CALL_COUNT);
    if (!count)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t rc = call_system(&c);
    if (rc != NVML_SUCCESS)
        return rc;
    *count = c.st->ngpus;
    return call_end(&c, rc);
}

nvmlReturn_t nvmlDeviceGetCount(unsigned int *count)
{
    return nvmlDeviceGetCount_v2(count);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
    struct call c = CALL(CALL_HANDLE);
    if (!device)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t rc = call_gpu_index(&c, index);
    if (rc != NVML_SUCCESS)
        return rc;
    *device = handle_gpu(index);
    return call_end(&c, rc);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device)
{
    return nvmlDeviceGetHandleByIndex_v2(index, device);
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
    struct call c = CALL(CALL_HANDLE);
    c.walks = uuid && strncasecmp(uuid, "MIG-", 4) == 0;
    if (!uuid || !device || (strncasecmp(uuid, "GPU-", 4) != 0 && strncasecmp(uuid, "MIG-", 4) != 0))
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t rc = call_system(&c);
    if (rc != NVML_SUCCESS)
        return rc;
    for (unsigned i = 0; i < c.st->ngpus; i++) {
        char text[UUID_TEXT];
        ops_uuid_text("GPU-", c.st->gpu[i].uuid, text);
        if (strcasecmp(text, uuid) == 0) {
            *device = handle_gpu(i);
            return call_end(&c, c.st->gpu[i].lost ? NVML_ERROR_GPU_IS_LOST : NVML_SUCCESS);
        }
    }
    unsigned gpu, gi, ci;
    if (!ops_find_ci(c.st, uuid, &gpu, &gi, &ci))
        return call_end(&c, NVML_ERROR_NOT_FOUND);
    *device = handle_mig(gpu, gi, ci, c.st->gpu[gpu].gi[gi].ci[ci].serial);
    return call_end(&c, c.st->gpu[gpu].lost ? NVML_ERROR_GPU_IS_LOST : NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *pciBusId, nvmlDevice_t *device)
{
    unsigned domain, bus, slot, function;
    if (!pciBusId || !device || sscanf(pciBusId, "%x:%x:%x.%x", &domain, &bus, &slot, &function) != 4)
        return NVML_ERROR_INVALID_ARGUMENT;
    unsigned count;
    nvmlReturn_t rc = nvmlDeviceGetCount_v2(&count);
    if (rc != NVML_SUCCESS)
        return rc;
    if (domain != 0 || slot != 0 || function != 0 || bus < rules_bus(0) || bus >= rules_bus(count))
        return NVML_ERROR_NOT_FOUND;
    return nvmlDeviceGetHandleByIndex_v2(bus - rules_bus(0), device);
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *pciBusId, nvmlDevice_t *device)
{
    return nvmlDeviceGetHandleByPciBusId_v2(pciBusId, device);
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
    struct call c = CALL(CALL_IDENTITY);
    if (!pci)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t rc = call_gpu(&c, device);
    if (rc != NVML_SUCCESS)
        return rc;
    *pci = (nvmlPciInfo_t){.bus = rules_bus((unsigned)c.gpu), .pciDeviceId = c.b->pci_id};
    snprintf(pci->busId, sizeof pci->busId, "00000000:%02X:00.0", pci->bus);
    snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "0000:%02X:00.0", pci->bus);
    return call_end(&c, rc);
}

nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
    return nvmlDeviceGetPciInfo_v3(device, pci);
}

nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
    return nvmlDeviceGetPciInfo_v3(device, pci);
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index)
{
    struct call c = CALL(CALL_IDENTITY);
    if (!index)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t rc = call_any_device(&c, device);
    if (rc != NVML_SUCCESS)
        return rc;
    *index = (unsigned)c.gpu;
    if (c.ci) {
        *index = 0;
        for (struct gi_state *gi = c.g->gi; gi <= c.gi; gi++)
            for (struct ci_state *ci = gi->ci; ci < gi->ci + EMU_MAX_CI && ci != c.ci; ci++)
                *index += gi->used && ci->used;
    }
    return call_end(&c, rc);
}

nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *minorNumber)
{
    struct call c = CALL(CALL_IDENTITY);
    if (!minorNumber)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t rc = call_gpu(&c, device);
    if (rc != NVML_SUCCESS)
        return rc;
    *minorNumber = (unsigned)c.gpu;
    return call_end(&c, rc);
}

nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t device, nvmlDeviceArchitecture_t *arch)
{
    struct call c = CALL(CALL_IDENTITY);
    if (!arch)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t rc = call_gpu(&c, device);
    if (rc != NVML_SUCCESS)
        return rc;
    *arch = c.b->arch;
    return call_end(&c, rc);
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length)
{
    struct call c = CALL(CALL_IDENTITY);
    nvmlReturn_t rc = call_any_device(&c, device);
    if (rc != NVML_SUCCESS)
        return rc;
    char text[UUID_TEXT];
    ops_uuid_text(c.ci ? "MIG-" : "GPU-", c.ci ? c.ci->uuid : c.g->uuid, text);
    return call_end(&c, lib_copy(uuid, length, text));
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length)
{
    struct call c = CALL(CALL_IDENTITY);
    nvmlReturn_t rc = call_any_device(&c, device);
    if (rc != NVML_SUCCESS)
        return rc;
    char text[160];
    snprintf(text, sizeof text, "%s", c.b->device);
    if (c.gi)
        snprintf(text, sizeof text, "%s MIG %s", c.b->device, rules_name(c.g, c.gi->profile));
    return call_end(&c, lib_copy(name, length, text));
}

static const unsigned long long mib = 1024 * 1024;

/* memory returns a device's memory. shared is true if the driver takes the caller's cgroup into account. */
static nvmlReturn_t memory(nvmlDevice_t device, bool shared, uint64_t *total, uint64_t *used)
{
    struct call c = CALL(CALL_MEMORY);
    c.monitor = true;
    nvmlReturn_t rc = call_any_device(&c, device);
    if (rc != NVML_SUCCESS)
        return rc;
    *total = (c.gi ? rules_memory_mib(c.g, c.gi->profile) : c.b->total_mib) * mib;
    *used = ops_used_mib(c.st, (unsigned)c.gpu, c.gi_id) * mib;
    if (*used > *total)
        *used = *total;
    if (shared && !c.g->mig)
        cgroup_show(c.st, (unsigned)c.gpu, total, used);
    return call_end(&c, rc);
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *info)
{
    uint64_t total, used;
    if (!info)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t rc = memory(device, false, &total, &used);
    if (rc == NVML_SUCCESS)
        *info = (nvmlMemory_t){.total = total, .used = used, .free = total - used};
    return rc;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *info)
{
    uint64_t total, used;
    if (!info)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (info->version != nvmlMemory_v2)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    nvmlReturn_t rc = memory(device, true, &total, &used);
    if (rc == NVML_SUCCESS)
        *info = (nvmlMemory_v2_t){.version = nvmlMemory_v2, .total = total, .used = used, .free = total - used};
    return rc;
}

/*
 * For GPUs with MIG mode on and for MIG devices, nvmlDeviceGetUtilizationRates returns NOT_SUPPORTED, as the driver
 * does. For other GPUs, the result is the SM utilization that the GPU's processes report, rounded to percent.
 * Processes do not report their use of the memory interface, so it is 0.
 */
nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *utilization)
{
    struct call c = CALL(CALL_UTILIZATION);
    if (!utilization)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t rc = call_any_device(&c, device);
    if (rc != NVML_SUCCESS)
        return rc;
    *utilization = (nvmlUtilization_t){.gpu = (ops_busy(c.st, (unsigned)c.gpu, EMU_WHOLE) * 100 + EMU_BUSY / 2) / EMU_BUSY};
    return call_end(&c, c.g->mig ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS);
}

/* processes lists the processes on a GPU or MIG device in version 1 or 2 of the structure. */
static nvmlReturn_t processes(nvmlDevice_t device, bool graphics, unsigned int *infoCount, nvmlProcessInfo_v1_t *v1,
                              nvmlProcessInfo_v2_t *v2)
{
    struct call c = CALL(CALL_PROCESSES);
    c.monitor = true;
    if (!infoCount || (*infoCount && !v1 && !v2))
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t rc = call_any_device(&c, device);
    if (rc != NVML_SUCCESS)
        return rc;
    unsigned room = *infoCount, n = 0;
    for (int i = 0; i < EMU_MAX_CLIENTS; i++) {
        const struct client *p = &c.st->client[i];
        if (!client_live(p) || p->graphics != graphics || p->gpu != c.gpu || (c.ci && (p->gi != c.gi_id || p->ci != c.ci_id)))
            continue;
        if (n < room && v1)
            v1[n] = (nvmlProcessInfo_v1_t){.pid = p->pid, .usedGpuMemory = p->memory_mib * mib};
        if (n < room && v2) {
            bool whole = p->gi == EMU_WHOLE || quirk(QUIRK_NO_PROCESS_IDS);
            v2[n] = (nvmlProcessInfo_v2_t){.pid = p->pid,
                                           .usedGpuMemory = p->memory_mib * mib,
                                           .gpuInstanceId = whole ? 0xFFFFFFFF : p->gi,
                                           .computeInstanceId = whole ? 0xFFFFFFFF : p->ci};
        }
        n++;
    }
    *infoCount = n;
    return call_end(&c, n > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned int *infoCount, nvmlProcessInfo_v1_t *infos)
{
    return processes(device, false, infoCount, infos, NULL);
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned int *infoCount, nvmlProcessInfo_v2_t *infos)
{
    return processes(device, false, infoCount, NULL, infos);
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *infoCount, nvmlProcessInfo_t *infos)
{
    return processes(device, false, infoCount, NULL, infos);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses(nvmlDevice_t device, unsigned int *infoCount, nvmlProcessInfo_v1_t *infos)
{
    return processes(device, true, infoCount, infos, NULL);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v2(nvmlDevice_t device, unsigned int *infoCount, nvmlProcessInfo_v2_t *infos)
{
    return processes(device, true, infoCount, NULL, infos);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned int *infoCount, nvmlProcessInfo_t *infos)
{
    return processes(device, true, infoCount, NULL, infos);
}
