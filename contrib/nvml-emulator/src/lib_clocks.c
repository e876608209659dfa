/*
 * This file implements the calls for clocks, which Slurm's gpu/nvml plugin and monitoring programs make. Clocks are not
 * emulated: all calls with valid arguments return NOT_SUPPORTED, as nvml.h documents for devices without this feature.
 */
#include "lib.h"

static nvmlReturn_t not_supported(nvmlDevice_t device)
{
    struct call c = CALL(CALL_IDENTITY);
    nvmlReturn_t rc = call_gpu(&c, device);
    return rc == NVML_SUCCESS ? call_end(&c, NVML_ERROR_NOT_SUPPORTED) : rc;
}

nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned int *clock)
{
    return !clock || type >= NVML_CLOCK_COUNT ? NVML_ERROR_INVALID_ARGUMENT : not_supported(device);
}

nvmlReturn_t nvmlDeviceGetApplicationsClock(nvmlDevice_t device, nvmlClockType_t clockType, unsigned int *clockMHz)
{
    return !clockMHz || clockType >= NVML_CLOCK_COUNT ? NVML_ERROR_INVALID_ARGUMENT : not_supported(device);
}

nvmlReturn_t nvmlDeviceGetSupportedMemoryClocks(nvmlDevice_t device, unsigned int *count, unsigned int *clocksMHz)
{
    (void)clocksMHz;
    return !count ? NVML_ERROR_INVALID_ARGUMENT : not_supported(device);
}

nvmlReturn_t nvmlDeviceGetSupportedGraphicsClocks(nvmlDevice_t device, unsigned int memoryClockMHz, unsigned int *count,
                                                  unsigned int *clocksMHz)
{
    (void)memoryClockMHz;
    (void)clocksMHz;
    return !count ? NVML_ERROR_INVALID_ARGUMENT : not_supported(device);
}

nvmlReturn_t nvmlDeviceSetApplicationsClocks(nvmlDevice_t device, unsigned int memClockMHz, unsigned int graphicsClockMHz)
{
    (void)memClockMHz;
    (void)graphicsClockMHz;
    return not_supported(device);
}

nvmlReturn_t nvmlDeviceResetApplicationsClocks(nvmlDevice_t device)
{
    return not_supported(device);
}

nvmlReturn_t nvmlDeviceSetGpuLockedClocks(nvmlDevice_t device, unsigned int minGpuClockMHz, unsigned int maxGpuClockMHz)
{
    return minGpuClockMHz > maxGpuClockMHz ? NVML_ERROR_INVALID_ARGUMENT : not_supported(device);
}

nvmlReturn_t nvmlDeviceResetGpuLockedClocks(nvmlDevice_t device)
{
    return not_supported(device);
}

nvmlReturn_t nvmlDeviceSetMemoryLockedClocks(nvmlDevice_t device, unsigned int minMemClockMHz, unsigned int maxMemClockMHz)
{
    return minMemClockMHz > maxMemClockMHz ? NVML_ERROR_INVALID_ARGUMENT : not_supported(device);
}

nvmlReturn_t nvmlDeviceResetMemoryLockedClocks(nvmlDevice_t device)
{
    return not_supported(device);
}
