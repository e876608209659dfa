/*
 * This file implements the calls for single NVLinks. The emulated machines have no NVSwitch: each GPU has one link to
 * each GPU that `nvml-emulator init --nvlink` connects to it, in the order of the GPUs' indices. While MIG mode is on,
 * the driver hides a GPU's NVLinks, and all of its links are inactive.
 */
#include <stdio.h>

#include "lib.h"

/* peer returns the index of the GPU at the other end of a link, or -1 if the link is inactive. */
static int peer(const struct call *c, unsigned link)
{
    for (unsigned i = 0; !c->g->mig && i < c->st->ngpus; i++)
        if (c->g->nvlink >> i & 1 && link-- == 0)
            return (int)i;
    return -1;
}

nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned int link, nvmlEnableState_t *isActive)
{
    struct call c = CALL(CALL_P2P);
    if (!isActive || link >= NVML_NVLINK_MAX_LINKS)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t rc = call_gpu(&c, device);
    if (rc != NVML_SUCCESS)
        return rc;
    *isActive = peer(&c, link) >= 0 ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED;
    return call_end(&c, rc);
}

nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned int link, nvmlPciInfo_t *pci)
{
    struct call c = CALL(CALL_P2P);
    if (!pci || link >= NVML_NVLINK_MAX_LINKS)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t rc = call_gpu(&c, device);
    if (rc != NVML_SUCCESS)
        return rc;
    int other = peer(&c, link);
    if (other < 0)
        return call_end(&c, NVML_ERROR_NOT_SUPPORTED);
    *pci = (nvmlPciInfo_t){.bus = rules_bus((unsigned)other), .pciDeviceId = rules_board(&c.st->gpu[other])->pci_id};
    snprintf(pci->busId, sizeof pci->busId, "00000000:%02X:00.0", pci->bus);
    snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "0000:%02X:00.0", pci->bus);
    return call_end(&c, rc);
}

nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo(nvmlDevice_t device, unsigned int link, nvmlPciInfo_t *pci)
{
    return nvmlDeviceGetNvLinkRemotePciInfo_v2(device, link, pci);
}
