#include "names.h"

#include <string.h>
#include <strings.h>

static const char *const calls[] = {
#define X(name) #name,
    EMU_CALLS(X)
#undef X
};

const char *call_name(int call)
{
    return call >= 0 && call < CALL_KINDS ? calls[call] : "?";
}

int call_by_name(const char *name)
{
    for (int i = 0; i < CALL_KINDS; i++)
        if (strcasecmp(name, calls[i]) == 0)
            return i;
    return -1;
}

static const struct {
    nvmlReturn_t rc;
    const char *name, *text;
} codes[] = {
    {NVML_SUCCESS, "SUCCESS", "Success"},
    {NVML_ERROR_UNINITIALIZED, "UNINITIALIZED", "Uninitialized"},
    {NVML_ERROR_INVALID_ARGUMENT, "INVALID_ARGUMENT", "Invalid Argument"},
    {NVML_ERROR_NOT_SUPPORTED, "NOT_SUPPORTED", "Not Supported"},
    {NVML_ERROR_NO_PERMISSION, "NO_PERMISSION", "Insufficient Permissions"},
    {NVML_ERROR_NOT_FOUND, "NOT_FOUND", "Not Found"},
    {NVML_ERROR_INSUFFICIENT_SIZE, "INSUFFICIENT_SIZE", "Insufficient Size"},
    {NVML_ERROR_DRIVER_NOT_LOADED, "DRIVER_NOT_LOADED", "Driver Not Loaded"},
    {NVML_ERROR_TIMEOUT, "TIMEOUT", "Timeout"},
    {NVML_ERROR_GPU_IS_LOST, "GPU_IS_LOST", "GPU is lost"},
    {NVML_ERROR_RESET_REQUIRED, "RESET_REQUIRED", "GPU requires reset"},
    {NVML_ERROR_OPERATING_SYSTEM, "OPERATING_SYSTEM", "Operating System Error"},
    {NVML_ERROR_FUNCTION_NOT_FOUND, "FUNCTION_NOT_FOUND", "Function Not Found"},
    {NVML_ERROR_LIB_RM_VERSION_MISMATCH, "LIB_RM_VERSION_MISMATCH", "Driver/library version mismatch"},
    {NVML_ERROR_IN_USE, "IN_USE", "In use by another client"},
    {NVML_ERROR_MEMORY, "MEMORY", "Insufficient Memory"},
    {NVML_ERROR_NO_DATA, "NO_DATA", "No data"},
    {NVML_ERROR_INSUFFICIENT_RESOURCES, "INSUFFICIENT_RESOURCES", "Insufficient Resources"},
    {NVML_ERROR_ARGUMENT_VERSION_MISMATCH, "ARGUMENT_VERSION_MISMATCH", "Argument version mismatch"},
    {NVML_ERROR_NOT_READY, "NOT_READY", "System is not ready"},
    {NVML_ERROR_INVALID_STATE, "INVALID_STATE", "Invalid state"},
    {NVML_ERROR_UNKNOWN, "UNKNOWN", "Unknown Error"},
};

#define NCODES (sizeof codes / sizeof codes[0])

const char *rc_name(nvmlReturn_t rc)
{
    for (size_t i = 0; i < NCODES; i++)
        if (codes[i].rc == rc)
            return codes[i].name;
    return "UNKNOWN";
}

const char *rc_text(nvmlReturn_t rc)
{
    for (size_t i = 0; i < NCODES; i++)
        if (codes[i].rc == rc)
            return codes[i].text;
    return "Unknown Error";
}

int rc_by_name(const char *name)
{
    if (strncasecmp(name, "NVML_ERROR_", 11) == 0)
        name += 11;
    for (size_t i = 0; i < NCODES; i++)
        if (strcasecmp(name, codes[i].name) == 0)
            return (int)codes[i].rc;
    return -1;
}
