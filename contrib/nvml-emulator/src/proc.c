#include "proc.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cgroup.h"
#include "device.h"
#include "rules.h"

/* make_parents creates the parent directories of a file. */
static int make_parents(char *path)
{
    for (char *slash = path + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        int rc = mkdir(path, 0755);
        *slash = '/';
        if (rc != 0 && errno != EEXIST)
            return -1;
    }
    return 0;
}

static FILE *create(const struct state *st, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static FILE *create(const struct state *st, const char *fmt, ...)
{
    char path[512];
    int n = snprintf(path, sizeof path, "%s/", st->proc_root);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(path + n, sizeof path - (size_t)n, fmt, ap);
    va_end(ap);
    if (make_parents(path) != 0)
        return NULL;
    FILE *f = fopen(path, "we");
    if (f)
        fchmod(fileno(f), 0444); /* the real driver's mode; root can still write to the file */
    return f;
}

static int finish(FILE *f)
{
    bool bad = ferror(f);
    return fclose(f) != 0 || bad ? -1 : 0;
}

static int write_devices(const struct state *st)
{
    FILE *f = create(st, "devices");
    if (!f)
        return -1;
    fprintf(f, "Character devices:\n%3d nvidia-caps\n\nBlock devices:\n", EMU_MAJOR);
    return finish(f);
}

static int write_params(const struct state *st)
{
    FILE *f = create(st, "driver/nvidia/params");
    if (!f)
        return -1;
    fprintf(f, "ModifyDeviceFiles: %d\nDeviceFileUID: 0\nDeviceFileGID: 0\nDeviceFileMode: 438\n", !st->keep_device_files);
    const char *dwords = "";
    if (st->memory_limits)
        dwords = "RmMemacctController=" EMU_CONTROLLER;
    else if (driver_release(st) >= EMU_LIMITS_RELEASE)
        dwords = "RmMemacctMode=0";
    fprintf(f, "RegistryDwords: \"%s\"\n", dwords);
    return finish(f);
}

static int write_minors(const struct state *st)
{
    FILE *f = create(st, "driver/nvidia-caps/mig-minors");
    if (!f)
        return -1;
    fprintf(f, "config 1\nmonitor 2\n");
    for (unsigned gpu = 0; gpu < 32; gpu++) /* the driver's table has 32 GPUs */
        for (unsigned gi = 0; gi < EMU_MAX_GI; gi++) {
            fprintf(f, "gpu%u/gi%u/access %u\n", gpu, gi, rules_cap_minor(gpu, gi, -1));
            for (int ci = 0; ci < EMU_MAX_CI; ci++)
                fprintf(f, "gpu%u/gi%u/ci%d/access %u\n", gpu, gi, ci, rules_cap_minor(gpu, gi, ci));
        }
    return finish(f);
}

/* access_path writes the path of a capability's access file, relative to proc_root. */
static void access_path(unsigned minor, char *path, size_t size)
{
    static const char *const others[] = {
        [EMU_CAP_FABRIC] = "driver/nvidia-nvlink/capabilities/fabric-mgmt",
        [EMU_CAP_CONFIG] = "driver/nvidia/capabilities/mig/config",
        [EMU_CAP_MONITOR] = "driver/nvidia/capabilities/mig/monitor",
    };
    unsigned gpu, gi;
    int ci;
    char sub[16] = "";
    if (!rules_cap_of(minor, &gpu, &gi, &ci)) {
        snprintf(path, size, "%s", others[minor]);
        return;
    }
    if (ci >= 0)
        snprintf(sub, sizeof sub, "/ci%d", ci);
    snprintf(path, size, "driver/nvidia/capabilities/gpu%u/mig/gi%u%s/access", gpu, gi, sub);
}

static int write_access(const struct state *st, unsigned minor)
{
    char path[128];
    access_path(minor, path, sizeof path);
    FILE *f = create(st, "%s", path);
    if (!f)
        return -1;
    fprintf(f, "DeviceFileMinor: %u\nDeviceFileMode: %d\nDeviceFileModify: %d\n", minor, EMU_CAP_MODE(minor),
            !st->keep_device_files);
    return finish(f);
}

int proc_setup(const struct state *st, char *error, size_t size)
{
    if (!st->proc_root[0])
        return 0;
    for (unsigned gpu = 0; gpu < EMU_MAX_GPUS; gpu++)
        for (unsigned gi = 0; gi < EMU_MAX_GI; gi++)
            for (int ci = -1; ci < EMU_MAX_CI; ci++)
                proc_remove_cap(st, rules_cap_minor(gpu, gi, ci));
    if (write_devices(st) == 0 && write_params(st) == 0 && write_minors(st) == 0 &&
        write_access(st, EMU_CAP_CONFIG) == 0 && write_access(st, EMU_CAP_MONITOR) == 0 &&
        (!(st->host & EMU_FABRIC) || write_access(st, EMU_CAP_FABRIC) == 0))
        return 0;
    snprintf(error, size, "%s: %s", st->proc_root, strerror(errno));
    return -1;
}

int proc_add_cap(const struct state *st, unsigned gpu, unsigned gi, int ci)
{
    return st->proc_root[0] ? write_access(st, rules_cap_minor(gpu, gi, ci)) : 0;
}

bool proc_modifies(const struct state *st, unsigned minor)
{
    char below[128], path[512], line[64];
    int modify = 0;
    if (!st->proc_root[0])
        return false;
    access_path(minor, below, sizeof below);
    snprintf(path, sizeof path, "%s/%s", st->proc_root, below);
    FILE *f = fopen(path, "re");
    if (!f)
        return false;
    while (fgets(line, sizeof line, f) && sscanf(line, "DeviceFileModify: %d", &modify) != 1)
        ;
    fclose(f);
    return modify == 1;
}

int proc_remove_cap(const struct state *st, unsigned minor)
{
    char below[128], path[512];
    if (!st->proc_root[0])
        return 0;
    access_path(minor, below, sizeof below);
    snprintf(path, sizeof path, "%s/%s", st->proc_root, below);
    return unlink(path) == 0 || errno == ENOENT || errno == ENOTDIR ? 0 : -1;
}

void proc_sweep_caps(const struct state *st)
{
    for (unsigned gpu = 0; st->proc_root[0] && gpu < st->ngpus; gpu++)
        for (unsigned id = 0; id < EMU_MAX_GI; id++)
            for (int ci = -1; ci < EMU_MAX_CI; ci++) {
                const struct gi_state *gi = &st->gpu[gpu].gi[id];
                if (!gi->used || (ci >= 0 && !gi->ci[ci].used))
                    proc_remove_cap(st, rules_cap_minor(gpu, id, ci));
            }
}
