/*
 * This file implements nvmlInit, nvmlShutdown, and the code at the start and end of each call: permission, latency,
 * faults, lost GPUs, and the log.
 */
#include "lib.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "calls.h"
#include "device.h"
#include "faults.h"
#include "quirk.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static unsigned initialized;
static char path[512];
static char driver_version[32];
static bool may_config, may_monitor; /* which of the two files of the MIG capabilities nvmlInit could open */
static int held[EMU_MAX_GPUS];       /* descriptors of device files, with --nvml-clients 1 */
static unsigned nheld;

static uint64_t session;       /* the serial number of the machine's last instance before nvmlInit */
static uint64_t created[1024]; /* the serial numbers of the instances that the session has created */
static unsigned ncreated;

void lib_created(uint64_t serial)
{
    pthread_mutex_lock(&mutex);
    created[ncreated++ % 1024] = serial;
    pthread_mutex_unlock(&mutex);
}

bool lib_knows(uint64_t serial)
{
    bool known = serial <= session;
    pthread_mutex_lock(&mutex);
    for (unsigned i = 0; i < ncreated && i < 1024; i++)
        known = known || created[i] == serial;
    pthread_mutex_unlock(&mutex);
    return known;
}

/* lib_count counts a call for `nvml-emulator calls`. */
static void lib_count(int call)
{
    static uint64_t *counters;
    static char counted[sizeof path];
    pthread_mutex_lock(&mutex);
    if (strcmp(counted, path) != 0) { /* a process may use several machines, one after the other */
        strcpy(counted, path);
        counters = calls_open(path);
    }
    if (counters)
        __atomic_fetch_add(&counters[call], 1, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&mutex);
}

bool lib_initialized(void)
{
    pthread_mutex_lock(&mutex);
    bool yes = initialized > 0;
    pthread_mutex_unlock(&mutex);
    return yes;
}

const char *lib_driver_version(void)
{
    return driver_version;
}

nvmlReturn_t lib_copy(char *to, unsigned length, const char *text)
{
    if (!to)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (strlen(text) >= length)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(to, text);
    return NVML_SUCCESS;
}

static void sleep_ms(unsigned ms)
{
    struct timespec left = {ms / 1000, (long)(ms % 1000) * 1000000};
    while (nanosleep(&left, &left) != 0)
        ;
}

static nvmlReturn_t begin(struct call *c, enum txn_mode mode)
{
    switch (txn_begin(&c->t, path, mode)) {
    case TXN_OK:
        c->st = c->t.st;
        return NVML_SUCCESS;
    case TXN_MISSING:
        return NVML_ERROR_DRIVER_NOT_LOADED;
    case TXN_DENIED:
        fprintf(stderr, "nvml-emulator: %s\n", c->t.error);
        return NVML_ERROR_NO_PERMISSION;
    case TXN_WRONG_VERSION:
        fprintf(stderr, "nvml-emulator: %s\n", c->t.error);
        return NVML_ERROR_LIB_RM_VERSION_MISMATCH;
    default:
        fprintf(stderr, "nvml-emulator: %s\n", c->t.error);
        return NVML_ERROR_UNKNOWN;
    }
}

static unsigned latency(const struct call *c)
{
    unsigned ms = 0;
    for (unsigned i = 0; c->walks && i < c->st->ngpus; i++)
        ms += rules_walk_ms(&c->st->gpu[i]);
    if (c->gpu < 0 || (unsigned)c->gpu >= c->st->ngpus)
        return ms;
    const struct gpu_state *g = &c->st->gpu[c->gpu];
    int profile = -1;
    if (c->profile >= 0)
        profile = rules_profile_by_id(rules_board(g), (unsigned)c->profile);
    else if (c->gi_id >= 0 && g->gi[c->gi_id].used)
        profile = g->gi[c->gi_id].profile;
    return rules_latency_ms(g, (int)c->id, profile);
}

/* take_fault applies the call's fault. If the fault prevents the change, it returns the fault's error. */
static nvmlReturn_t take_fault(struct call *c)
{
    struct fault now;
    if (fault_take(&c->t, (int)c->id, c->gpu, &now) != 0)
        return NVML_ERROR_UNKNOWN;
    if (!now.used)
        return NVML_SUCCESS;
    c->t.crash = now.crash;
    c->activation = (nvmlReturn_t)now.activation;
    if (!now.after)
        return (nvmlReturn_t)now.rc;
    c->instead = (nvmlReturn_t)now.rc;
    return NVML_SUCCESS;
}

/*
 * may_call reports whether the process may make the call. The driver lets only processes with CAP_SYS_ADMIN change the
 * MIG mode (os_is_administrator in os-interface.c). The emulator lets root make other privileged calls.
 */
static bool may_call(const struct call *c)
{
    return c->admin ? client_admin() : !c->root || geteuid() == 0;
}

/*
 * has_capability reports whether the process has the capabilities that the call requires. The library opens the files of
 * mig/config and mig/monitor only in nvmlInit. Without mig/monitor, a process gets information only about the instance that
 * it can use (kmigmgrGetInstanceRefFromDevice in the open kernel modules 595.45.04).
 */
static bool has_capability(const struct call *c)
{
    if (c->config && !may_config)
        return false;
    if (c->subscribes && c->gi && !device_may_use(c->st, (unsigned)c->gpu, (unsigned)c->gi_id, -1))
        return false;
    if (!c->monitor || may_monitor || !c->g->mig || quirk(QUIRK_OPEN_MONITOR))
        return true;
    return c->ci && device_may_use(c->st, (unsigned)c->gpu, (unsigned)c->gi_id, -1) &&
           device_may_use(c->st, (unsigned)c->gpu, (unsigned)c->gi_id, c->ci_id);
}

static void event_place(struct call *c)
{
    struct event *e = &c->event;
    e->gpu = c->gpu;
    if (!c->g)
        return;
    if (c->profile >= 0)
        e->profile = rules_profile_by_id(c->b, (unsigned)c->profile);
    if (c->gi_id >= 0)
        e->gi = c->gi_id;
    if (c->gi) {
        e->profile = c->gi->profile;
        e->start = c->gi->start;
        e->size = c->gi->size;
    }
    if (c->ci_id >= 0)
        e->ci = c->ci_id;
}

static nvmlReturn_t enter(struct call *c, uint64_t serial)
{
    if (!lib_initialized() && c->id != CALL_INIT)
        return NVML_ERROR_UNINITIALIZED;
    lib_count((int)c->id);
    if (!may_call(c))
        return NVML_ERROR_NO_PERMISSION;
    nvmlReturn_t rc = begin(c, TXN_READ);
    if (rc != NVML_SUCCESS)
        return rc;
    unsigned ms = latency(c);
    bool fault = fault_find(c->st, (int)c->id, c->gpu) != NULL;
    if (ms || fault || c->write) {
        txn_end(&c->t);
        sleep_ms(ms / 2);
        c->tail_ms = ms - ms / 2;
        rc = begin(c, c->write || fault ? TXN_WRITE : TXN_READ);
        if (rc != NVML_SUCCESS)
            return rc;
    }
    if (c->gpu >= 0) {
        /* The handle may come from an earlier machine that had more GPUs. */
        if ((unsigned)c->gpu >= c->st->ngpus)
            return call_end(c, NVML_ERROR_INVALID_ARGUMENT);
        c->g = &c->st->gpu[c->gpu];
        c->b = rules_board(c->g);
    }
    if (c->gi_id >= 0) {
        c->gi = &c->g->gi[c->gi_id];
        if (c->ci_id >= 0)
            c->ci = &c->gi->ci[c->ci_id];
        bool exists = c->gi->used && (c->ci ? c->ci->used && c->ci->serial == serial : c->gi->serial == serial);
        if (!exists)
            c->gi = NULL, c->ci = NULL;
    }
    if (c->write)
        event_place(c);
    if (fault && (rc = take_fault(c)) != NVML_SUCCESS)
        return call_end(c, rc);
    if (c->g && c->g->lost && c->id != CALL_EVENTS)
        return call_end(c, NVML_ERROR_GPU_IS_LOST);
    if (c->g && c->g->reboot && c->id != CALL_HANDLE && c->id != CALL_IDENTITY && c->id != CALL_GET_MIG_MODE)
        return call_end(c, NVML_ERROR_RESET_REQUIRED);
    if (c->gi_id >= 0 && !c->gi)
        return call_end(c, NVML_ERROR_INVALID_ARGUMENT);
    if (c->g && !has_capability(c))
        return call_end(c, NVML_ERROR_NO_PERMISSION);
    return NVML_SUCCESS;
}

nvmlReturn_t call_system(struct call *c)
{
    return enter(c, 0);
}

nvmlReturn_t call_gpu_index(struct call *c, unsigned gpu)
{
    if (gpu >= EMU_MAX_GPUS)
        return lib_initialized() ? NVML_ERROR_INVALID_ARGUMENT : NVML_ERROR_UNINITIALIZED;
    c->gpu = (int)gpu;
    return enter(c, 0);
}

static nvmlReturn_t by_handle(struct call *c, const void *handle, bool gpu, bool mig, bool gi, bool ci)
{
    if (!lib_initialized())
        return NVML_ERROR_UNINITIALIZED;
    struct place p;
    if (!handle_place(handle, &p))
        return NVML_ERROR_INVALID_ARGUMENT;
    if (!((gpu && p.kind == KIND_GPU) || (mig && p.kind == KIND_MIG) || (gi && p.kind == KIND_GI) || (ci && p.kind == KIND_CI)))
        return NVML_ERROR_INVALID_ARGUMENT;
    c->gpu = p.gpu;
    c->gi_id = p.kind == KIND_GPU ? -1 : p.gi;
    c->ci_id = p.kind == KIND_MIG || p.kind == KIND_CI ? p.ci : -1;
    return enter(c, p.serial);
}

nvmlReturn_t call_any_device(struct call *c, nvmlDevice_t device)
{
    return by_handle(c, device, true, true, false, false);
}

nvmlReturn_t call_gpu(struct call *c, nvmlDevice_t device)
{
    return by_handle(c, device, true, false, false, false);
}

nvmlReturn_t call_gi(struct call *c, nvmlGpuInstance_t gi)
{
    return by_handle(c, gi, false, false, true, false);
}

nvmlReturn_t call_ci(struct call *c, nvmlComputeInstance_t ci)
{
    return by_handle(c, ci, false, false, false, true);
}

nvmlReturn_t call_end(struct call *c, nvmlReturn_t rc)
{
    if (c->instead && rc == NVML_SUCCESS)
        rc = c->instead;
    if (c->write) {
        if (c->event.name)
            ops_log(&c->t, &c->event, rc);
        if (txn_commit(&c->t) != 0) {
            fprintf(stderr, "nvml-emulator: %s\n", c->t.error);
            rc = NVML_ERROR_UNKNOWN;
        }
    }
    txn_end(&c->t);
    sleep_ms(c->tail_ms);
    return rc;
}

/* hold_gpus opens the device files of all GPUs that the process may open. */
static void hold_gpus(const struct state *st)
{
    for (unsigned i = 0; i < st->ngpus && st->nvml_clients; i++) {
        int fd = device_hold(st, i);
        if (fd >= 0)
            held[nheld++] = fd;
    }
}

static nvmlReturn_t init(void)
{
    pthread_mutex_lock(&mutex);
    if (initialized == 0)
        snprintf(path, sizeof path, "%s", state_path());
    pthread_mutex_unlock(&mutex);
    struct call c = CALL(CALL_INIT);
    nvmlReturn_t rc = call_system(&c);
    if (rc != NVML_SUCCESS)
        return rc;
    pthread_mutex_lock(&mutex);
    if (initialized++ == 0) {
        session = c.st->serial;
        ncreated = 0;
        strcpy(driver_version, c.st->driver_version);
        may_config = device_may_use_system(c.st, EMU_CAP_CONFIG);
        may_monitor = device_may_use_system(c.st, EMU_CAP_MONITOR);
        hold_gpus(c.st);
    }
    pthread_mutex_unlock(&mutex);
    rc = call_end(&c, rc);
    if (rc != NVML_SUCCESS)
        nvmlShutdown();
    return rc;
}

nvmlReturn_t nvmlInit_v2(void)
{
    return init();
}

nvmlReturn_t nvmlInit(void)
{
    return init();
}

nvmlReturn_t nvmlInitWithFlags(unsigned int flags)
{
    (void)flags; /* a flag lets nvmlInit succeed without GPUs; the emulated nvmlInit needs none */
    return init();
}

/* forget removes all instances, with the quirk forgetful. */
static void forget(void)
{
    struct call c = CALL(CALL_INIT);
    if (begin(&c, TXN_WRITE) != NVML_SUCCESS)
        return;
    for (unsigned i = 0; i < c.st->ngpus; i++)
        ops_wipe(&c.t, i);
    txn_commit(&c.t);
    txn_end(&c.t);
}

nvmlReturn_t nvmlShutdown(void)
{
    pthread_mutex_lock(&mutex);
    bool was = initialized > 0;
    if (was && --initialized == 0)
        while (nheld)
            close(held[--nheld]);
    bool last = was && initialized == 0 && ncreated;
    pthread_mutex_unlock(&mutex);
    if (last && quirk(QUIRK_FORGETFUL))
        forget();
    return was ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
}

const char *nvmlErrorString(nvmlReturn_t result)
{
    return rc_text(result);
}
