#include "quirk.h"

#include <stdio.h>
#include <unistd.h>

#include "state.h"

const char *const quirk_names[QUIRK_COUNT] = {
    [QUIRK_FEW_SMS] = "few-sms",
    [QUIRK_MOVING_IDS] = "moving-ids",
    [QUIRK_CI_IDS] = "ci-ids",
    [QUIRK_COUNTS] = "counts",
    [QUIRK_STALE_LIST] = "stale-list",
    [QUIRK_DESTROY_BUSY] = "destroy-busy",
    [QUIRK_NO_PROCESS_IDS] = "no-process-ids",
    [QUIRK_OPEN_MONITOR] = "open-monitor",
    [QUIRK_MODE_WHILE_HELD] = "mode-while-held",
    [QUIRK_P2P] = "p2p",
    [QUIRK_FORGETFUL] = "forgetful",
    [QUIRK_NO_ENFORCEMENT] = "no-enforcement",
    [QUIRK_HIDDEN_LIMIT] = "hidden-limit",
    [QUIRK_MISCOUNT] = "miscount",
    [QUIRK_MANAGED_STAYS] = "managed-stays",
    [QUIRK_STICKY_LIMIT] = "sticky-limit",
};

void quirk_path(enum quirk q, char path[600])
{
    snprintf(path, 600, "%s.quirk-%s", state_path(), quirk_names[q]);
}

bool quirk(enum quirk q)
{
    char path[600];
    quirk_path(q, path);
    return access(path, F_OK) == 0;
}

void quirk_clear(void)
{
    char path[600];
    for (int q = 0; q < QUIRK_COUNT; q++) {
        quirk_path((enum quirk)q, path);
        unlink(path);
    }
}
