#include "mode.h"

#include <time.h>
#include <unistd.h>

#include "device.h"
#include "ops.h"
#include "quirk.h"
#include "rules.h"

static bool known(const struct mode_users *u, uint32_t pid)
{
    for (unsigned i = 0; i < u->n; i++)
        if (u->pid[i] == pid)
            return true;
    return false;
}

bool mode_users(const struct state *st, unsigned gpu, uint32_t except, struct mode_users *u)
{
    const unsigned max = sizeof u->pid / sizeof u->pid[0];
    uint32_t holders[sizeof u->pid / sizeof u->pid[0]];
    *u = (struct mode_users){.held = st->gpu[gpu].held};
    for (int i = 0; i < EMU_MAX_CLIENTS && u->n < max; i++) {
        const struct client *c = &st->client[i];
        if (c->pid && c->gpu == gpu && c->pid != except && client_live(c) && !known(u, c->pid))
            u->pid[u->n++] = c->pid;
    }
    unsigned n = device_holders(st, gpu, holders, max);
    for (unsigned i = 0; i < n && u->n < max; i++)
        if (holders[i] != except && !known(u, holders[i]))
            u->pid[u->n++] = holders[i];
    return u->held || u->n;
}

static bool has_instances(const struct gpu_state *g)
{
    for (int i = 0; i < EMU_MAX_GI; i++)
        if (g->gi[i].used)
            return true;
    return false;
}

void mode_apply(struct txn *t, unsigned gpu)
{
    struct gpu_state *g = &t->st->gpu[gpu];
    struct timespec now;
    /* A client may have ended since the transaction began. */
    ops_reap(t);
    clock_gettime(CLOCK_REALTIME, &now);
    if (g->mig && !g->mig_pending)
        g->fabric_ms = (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000 + t->st->fabric_delay_ms;
    g->mig = g->mig_pending;
}

/* reset_blocked reports whether persistence mode or nvidia_drm keeps the GPU in use, although no process uses it. */
static bool reset_blocked(const struct state *st, unsigned gpu)
{
    return st->gpu[gpu].persistence || st->host & EMU_DRM;
}

nvmlReturn_t mode_set(struct txn *t, unsigned gpu, bool on, nvmlReturn_t forced, nvmlReturn_t *activation, bool *reset)
{
    struct gpu_state *g = &t->st->gpu[gpu];
    struct mode_users users;
    *activation = NVML_SUCCESS;
    *reset = false;
    /*
     * The driver accepts no mode change while instances exist (ctrl2080gpu.h, SET_PARTITIONING_MODE). The firmware
     * that refuses it is not public. The emulator returns the code that nvidia-smi users report in this case ("Unable
     * to disable MIG Mode for GPU ...: In use by another client"). The header also lists INVALID_STATE.
     */
    if (g->mig != on && has_instances(g))
        return NVML_ERROR_IN_USE;
    g->mig_pending = on;
    /*
     * In a virtual machine, the driver reports success, and the GPU is then unusable until a reboot (issue 883 of
     * kubernetes-sigs/dra-driver-nvidia-gpu).
     */
    if (t->st->host & EMU_PASSTHROUGH && g->mig && !on && forced == NVML_SUCCESS) {
        g->reboot = 1;
        return NVML_SUCCESS;
    }
    if (forced != NVML_SUCCESS)
        *activation = forced;
    else if (g->mig == on)
        return NVML_SUCCESS;
    else if (!rules_board(g)->live_mode && t->st->mode_reset != MODE_RESET_AUTO)
        *activation = NVML_ERROR_RESET_REQUIRED;
    else if ((mode_users(t->st, gpu, (uint32_t)getpid(), &users) && !quirk(QUIRK_MODE_WHILE_HELD)) ||
             (!rules_board(g)->live_mode && reset_blocked(t->st, gpu)))
        *activation = NVML_ERROR_IN_USE;
    else if (rules_board(g)->live_mode)
        mode_apply(t, gpu);
    else
        *reset = true;
    return NVML_SUCCESS;
}

nvmlReturn_t mode_reset(struct txn *t, unsigned gpu, uint32_t except)
{
    struct mode_users users;
    if (mode_users(t->st, gpu, except, &users) || reset_blocked(t->st, gpu))
        return NVML_ERROR_IN_USE;
    ops_wipe(t, gpu);
    mode_apply(t, gpu);
    return NVML_SUCCESS;
}

void mode_reboot(struct txn *t, unsigned gpu)
{
    struct gpu_state *g = &t->st->gpu[gpu];
    if (t->st->host & EMU_BOOT_CONFIG) {
        ops_restore(t, gpu);
    } else {
        ops_wipe(t, gpu);
        if (rules_board(g)->live_mode)
            g->mig_pending = 0;
    }
    mode_apply(t, gpu);
    g->lost = g->held = g->reboot = 0;
}
