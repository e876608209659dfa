/*
 * This file implements queries about properties that follow from a GPU's chip or from the emulated machine: compute
 * capability, addressing mode, CPU affinity.
 */
#include <string.h>
#include <unistd.h>

#include "lib.h"

/*
 * The upper byte of a PCI device id identifies the chip of all MIG-capable GPUs. The compute capabilities are those of
 * NVIDIA's public table (developer.nvidia.com/cuda-gpus).
 */
static const struct chip {
    unsigned id;
    int major, minor;
} chips[] = {
    {0x20, 8, 0},  /* GA100: A100, A800, A30 */
    {0x23, 9, 0},  /* GH100: H100, H200, H20, GH200 */
    {0x29, 10, 0}, /* GB100: B200, GB200 */
    {0x2B, 12, 0}, /* GB202: RTX PRO 6000, RTX PRO 5000 */
    {0x2C, 12, 0}, /* GB203: RTX PRO 4500 */
};

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor)
{
    struct call c = CALL(CALL_IDENTITY);
    if (!major || !minor)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t rc = call_any_device(&c, device);
    if (rc != NVML_SUCCESS)
        return rc;
    for (size_t i = 0; i < sizeof chips / sizeof *chips; i++)
        if (chips[i].id == c.b->pci_id >> 24) {
            *major = chips[i].major;
            *minor = chips[i].minor;
            return call_end(&c, NVML_SUCCESS);
        }
    return call_end(&c, NVML_ERROR_UNKNOWN);
}

/* The emulated machines use neither heterogeneous memory management nor address translation services. */
nvmlReturn_t nvmlDeviceGetAddressingMode(nvmlDevice_t device, nvmlDeviceAddressingMode_t *mode)
{
    struct call c = CALL(CALL_IDENTITY);
    if (!mode)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (mode->version != nvmlDeviceAddressingMode_v1)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    nvmlReturn_t rc = call_gpu(&c, device);
    if (rc != NVML_SUCCESS)
        return rc;
    mode->value = NVML_DEVICE_ADDRESSING_MODE_NONE;
    return call_end(&c, rc);
}

/* All GPUs of an emulated machine are equally close to all of its CPUs. */
nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t device, unsigned int cpuSetSize, unsigned long *cpuSet)
{
    struct call c = CALL(CALL_IDENTITY);
    if (!cpuSet || cpuSetSize == 0)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t rc = call_gpu(&c, device);
    if (rc != NVML_SUCCESS)
        return rc;
    const unsigned bits = 8 * sizeof *cpuSet;
    long cpus = sysconf(_SC_NPROCESSORS_CONF);
    memset(cpuSet, 0, cpuSetSize * sizeof *cpuSet);
    for (unsigned i = 0; (long)i < cpus && i < cpuSetSize * bits; i++)
        cpuSet[i / bits] |= 1ul << i % bits;
    return call_end(&c, rc);
}
