/*
 * This file implements nvmlDeviceGetP2PStatus, which reports the pairs of GPUs that are connected by NVLinks.
 * nvmlDeviceGetNvLinkRemotePciInfo does not report them on machines with NVSwitch, where the remote end of each link is
 * a switch.
 */
#include "lib.h"
#include "quirk.h"

/*
 * connected reports whether two GPUs can access each other's memory over NVLink. The driver reports no P2P if MIG mode
 * is on for either GPU (p2pGetCapsStatus and kmigmgrIsMIGNvlinkP2PSupported in NVIDIA's open kernel modules).
 */
static bool connected(const struct state *st, unsigned a, unsigned b)
{
    return ((!st->gpu[a].mig && !st->gpu[b].mig) || quirk(QUIRK_P2P)) && st->gpu[a].nvlink >> b & 1;
}

/*
 * With NVLinks, the driver supports P2P reads, writes and atomic operations. The emulated machines have no P2P over
 * PCI Express.
 */
nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t device1, nvmlDevice_t device2, nvmlGpuP2PCapsIndex_t p2pIndex,
                                    nvmlGpuP2PStatus_t *p2pStatus)
{
    struct call c = CALL(CALL_P2P);
    struct place other;
    if (!p2pStatus || (unsigned)p2pIndex >= NVML_P2P_CAPS_INDEX_UNKNOWN)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t rc = call_gpu(&c, device1);
    if (rc != NVML_SUCCESS)
        return rc;
    if (!handle_place(device2, &other) || other.kind != KIND_GPU || other.gpu >= c.st->ngpus || other.gpu == c.gpu)
        return call_end(&c, NVML_ERROR_INVALID_ARGUMENT);
    if (c.st->gpu[other.gpu].lost)
        return call_end(&c, NVML_ERROR_GPU_IS_LOST);
    bool ok = p2pIndex != NVML_P2P_CAPS_INDEX_PCI && connected(c.st, (unsigned)c.gpu, other.gpu);
    *p2pStatus = ok ? NVML_P2P_STATUS_OK : NVML_P2P_STATUS_NOT_SUPPORTED;
    return call_end(&c, rc);
}
