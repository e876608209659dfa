/* This file implements the calls for a GPU's MIG mode. */
#include <unistd.h>

#include "lib.h"
#include "mode.h"

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *currentMode, unsigned int *pendingMode)
{
    struct call c = CALL(CALL_GET_MIG_MODE);
    if (!currentMode || !pendingMode)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t rc = call_gpu(&c, device);
    if (rc != NVML_SUCCESS)
        return rc;
    *currentMode = c.g->mig;
    *pendingMode = c.g->mig_pending;
    return call_end(&c, c.b->nprofiles ? rc : NVML_ERROR_NOT_SUPPORTED);
}

/* reset resets a GPU whose MIG mode changes only after a reset, and returns the activation status. */
static nvmlReturn_t reset(unsigned gpu)
{
    struct call c = CALL(CALL_RESET);
    c.write = c.admin = true;
    c.event = EVENT("reset");
    nvmlReturn_t rc = call_gpu_index(&c, gpu);
    if (rc != NVML_SUCCESS)
        return rc;
    rc = mode_reset(&c.t, gpu, (uint32_t)getpid());
    c.event.mig = c.g->mig;
    return call_end(&c, rc);
}

/*
 * A mode change that needs a reset takes two changes of the state: the first sets the pending mode, which the reset
 * then applies. In between, the mode is pending, another client may open the GPU, and the caller may be killed.
 */
nvmlReturn_t nvmlDeviceSetMigMode(nvmlDevice_t device, unsigned int mode, nvmlReturn_t *activationStatus)
{
    struct call c = CALL(CALL_SET_MIG_MODE);
    c.write = c.admin = true;
    c.event = EVENT("mig-mode");
    if (!activationStatus || mode > NVML_DEVICE_MIG_ENABLE)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t rc = call_gpu(&c, device);
    if (rc != NVML_SUCCESS)
        return rc;
    if (!c.b->nprofiles)
        return call_end(&c, NVML_ERROR_NOT_SUPPORTED);
    bool must_reset;
    unsigned gpu = (unsigned)c.gpu;
    rc = mode_set(&c.t, gpu, mode == NVML_DEVICE_MIG_ENABLE, c.activation, activationStatus, &must_reset);
    c.event.mig = c.g->mig;
    rc = call_end(&c, rc);
    if (rc == NVML_SUCCESS && must_reset)
        *activationStatus = reset(gpu);
    return rc;
}
