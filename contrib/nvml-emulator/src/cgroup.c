#include "cgroup.h"

#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "quirk.h"

#define MOUNTPOINT "/sys/fs/cgroup"

unsigned driver_release(const struct state *st)
{
    return (unsigned)strtoul(st->driver_version, NULL, 10);
}

/* inode returns the inode number of a directory, or 0. */
static uint64_t inode(const char *dir)
{
    struct stat sb;
    return stat(dir, &sb) == 0 && S_ISDIR(sb.st_mode) ? sb.st_ino : 0;
}

/* controlled reports whether the controller is enabled on a cgroup. */
static bool controlled(const char *dir)
{
    char path[PATH_MAX + 32], list[256] = "", *rest = list;
    snprintf(path, sizeof path, "%s/cgroup.controllers", dir);
    FILE *f = fopen(path, "re");
    if (!f)
        return false;
    if (!fgets(list, sizeof list, f))
        *list = '\0';
    fclose(f);
    for (char *word; (word = strsep(&rest, " \n"));)
        if (strcmp(word, EMU_CONTROLLER) == 0)
            return true;
    return false;
}

/* up shortens the path of a cgroup to that of its parent. It returns false at the top. */
static bool up(char *dir)
{
    char *slash = strrchr(dir, '/');
    if (!slash || slash < dir + strlen(MOUNTPOINT))
        return false;
    *slash = '\0';
    return true;
}

/* own writes the path of the cgroup that is charged for the calling process, or returns false if there is none. */
static bool own(const struct state *st, char dir[PATH_MAX])
{
    char line[PATH_MAX];
    FILE *f = st->memory_limits ? fopen("/proc/self/cgroup", "re") : NULL;
    if (!f)
        return false;
    *dir = '\0';
    while (fgets(line, sizeof line, f)) /* a machine may have cgroup v1 hierarchies, with other numbers, as well */
        if (strncmp(line, "0::/", 4) == 0 && strncmp(line, "0::/..", 6) != 0)
            snprintf(dir, PATH_MAX, MOUNTPOINT "%.*s", (int)strcspn(line + 3, "\n"), line + 3);
    fclose(f);
    if (*dir && dir[strlen(dir) - 1] == '/')
        dir[strlen(dir) - 1] = '\0';
    while (*dir && !controlled(dir))
        if (!up(dir))
            return false;
    return *dir;
}

/* gone reports whether a cgroup has been removed. */
static bool gone(const struct state *st, const struct cgroup *g)
{
    for (int i = 0; i < EMU_MAX_CLIENTS; i++)
        if (st->client[i].pid && st->client[i].cgroup && g == &st->cgroup[st->client[i].cgroup - 1])
            return false;
    return inode(g->path) != g->inode;
}

/* find returns the entry of a cgroup, which it may have inherited, or NULL. */
static const struct cgroup *find(const struct state *st, const char *dir)
{
    uint64_t key = inode(dir);
    for (const struct cgroup *g = st->cgroup; g < st->cgroup + EMU_MAX_CGROUPS; g++)
        if (g->inode && g->inode == key)
            return g;
    for (const struct cgroup *g = st->cgroup; g < st->cgroup + EMU_MAX_CGROUPS && st->memory_limits == LIMITS_MISC; g++)
        if (g->inode && g->inode < key && gone(st, g))
            return g;
    return NULL;
}

/* take returns the entry of a cgroup, and creates it if necessary. If this is impossible, it prints a message and returns NULL. */
static struct cgroup *take(struct state *st, const char *dir)
{
    struct cgroup *g = (struct cgroup *)find(st, dir);
    for (int i = 0; !g && i < EMU_MAX_CGROUPS; i++)
        if (!st->cgroup[i].inode || (st->memory_limits == LIMITS_DMEM && gone(st, &st->cgroup[i])))
            g = memset(&st->cgroup[i], 0, sizeof *g);
    if (!g || strlen(dir) >= sizeof g->path) {
        fprintf(stderr, "nvml-emulator: %s is not known to the driver: at most %d cgroups with at most %zu characters\n", dir, EMU_MAX_CGROUPS,
                sizeof g->path - 1);
        return NULL;
    }
    g->inode = inode(dir);
    strcpy(g->path, dir);
    return g;
}

/* nearest returns the entry of the nearest cgroup upwards that has a limit on the GPU, or NULL. */
static const struct cgroup *nearest(const struct state *st, unsigned gpu, const char *path)
{
    char dir[PATH_MAX];
    snprintf(dir, sizeof dir, "%s", path);
    do {
        const struct cgroup *g = find(st, dir);
        if (g && g->limit[gpu])
            return g;
    } while (up(dir));
    return NULL;
}

/* below reports whether a cgroup is the other one or one of its descendants. */
static bool below(const char *path, const char *other)
{
    size_t n = strlen(other);
    return strncmp(path, other, n) == 0 && (path[n] == '/' || path[n] == '\0');
}

/* usage returns the bytes on the GPU that count towards the limit of a cgroup. */
static uint64_t usage(const struct state *st, unsigned gpu, const struct cgroup *g)
{
    uint64_t bytes = 0;
    for (int i = 0; i < EMU_MAX_CLIENTS; i++) {
        const struct client *c = &st->client[i];
        if (!c->cgroup || c->gpu != gpu || !client_live(c))
            continue;
        const char *path = st->cgroup[c->cgroup - 1].path;
        if (st->memory_limits == LIMITS_DMEM ? below(path, g->path) : nearest(st, gpu, path) == g)
            bytes += (uint64_t)c->memory_mib << 20;
    }
    return bytes;
}

/* resolve writes the path of a cgroup without links, or returns false if cgroup is not a cgroup's directory. */
static bool resolve(const char *cgroup, char dir[PATH_MAX])
{
    struct statfs fs;
    return realpath(cgroup, dir) && inode(dir) && statfs(dir, &fs) == 0 && fs.f_type == CGROUP2_SUPER_MAGIC;
}

/* supported returns the reason why the driver has no memory limits on the GPU, or SUCCESS. */
static nvmlReturn_t supported(const struct state *st, unsigned gpu)
{
    if (driver_release(st) < EMU_LIMITS_RELEASE)
        return NVML_ERROR_FUNCTION_NOT_FOUND;
    return st->memory_limits && !st->gpu[gpu].mig ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t cgroup_set(struct state *st, unsigned gpu, const char *cgroup, uint64_t bytes)
{
    char dir[PATH_MAX];
    if (supported(st, gpu) != NVML_SUCCESS)
        return supported(st, gpu);
    if (!resolve(cgroup, dir) || bytes == 0)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (st->memory_limits == LIMITS_DMEM && !controlled(dir))
        return NVML_ERROR_NOT_FOUND;
    struct cgroup *g = take(st, dir);
    if (!g)
        return NVML_ERROR_INSUFFICIENT_RESOURCES;
    uint64_t before = g->limit[gpu];
    if (bytes == UINT64_MAX && before && quirk(QUIRK_STICKY_LIMIT))
        return NVML_SUCCESS;
    g->limit[gpu] = bytes;
    if (st->memory_limits == LIMITS_DMEM || usage(st, gpu, g) <= bytes)
        return NVML_SUCCESS;
    g->limit[gpu] = before;
    return NVML_ERROR_INVALID_ARGUMENT; /* the driver's error is not published */
}

nvmlReturn_t cgroup_get(const struct state *st, unsigned gpu, const char *cgroup, uint64_t *bytes, uint64_t *used)
{
    char dir[PATH_MAX];
    if (supported(st, gpu) != NVML_SUCCESS)
        return supported(st, gpu);
    if (!resolve(cgroup, dir))
        return NVML_ERROR_INVALID_ARGUMENT;
    while (st->memory_limits == LIMITS_DMEM && !controlled(dir))
        if (!up(dir))
            return NVML_ERROR_NOT_FOUND;
    const struct cgroup *g = find(st, dir);
    if (!g || !g->limit[gpu])
        return st->memory_limits == LIMITS_DMEM ? NVML_ERROR_NOT_FOUND : NVML_ERROR_NOT_SUPPORTED;
    *bytes = g->limit[gpu];
    *used = quirk(QUIRK_MISCOUNT) ? 0 : usage(st, gpu, g);
    return NVML_SUCCESS;
}

unsigned cgroup_join(struct state *st)
{
    char dir[PATH_MAX];
    struct cgroup *g = own(st, dir) ? take(st, dir) : NULL;
    return g ? (unsigned)(g - st->cgroup) + 1 : 0;
}

uint64_t cgroup_room(const struct state *st, unsigned gpu, unsigned number)
{
    uint64_t least = UINT64_MAX;
    const char *path = st->cgroup[number - 1].path;
    const struct cgroup *only = st->memory_limits == LIMITS_MISC ? nearest(st, gpu, path) : NULL;
    for (const struct cgroup *g = st->cgroup; g < st->cgroup + EMU_MAX_CGROUPS && !quirk(QUIRK_NO_ENFORCEMENT); g++) {
        bool applies = st->memory_limits == LIMITS_MISC ? g == only : below(path, g->path) && inode(g->path) == g->inode;
        if (!g->inode || !g->limit[gpu] || !applies)
            continue;
        uint64_t used = usage(st, gpu, g), left = g->limit[gpu] > used ? g->limit[gpu] - used : 0;
        least = left < least ? left : least;
    }
    return least;
}

void cgroup_show(const struct state *st, unsigned gpu, uint64_t *total, uint64_t *used)
{
    char dir[PATH_MAX];
    if (quirk(QUIRK_HIDDEN_LIMIT) || !own(st, dir))
        return;
    /* With dmem, a process sees only the limit of the cgroup that is charged, although all limits upwards apply. */
    const struct cgroup *g = st->memory_limits == LIMITS_MISC ? nearest(st, gpu, dir) : find(st, dir);
    if (!g || !g->limit[gpu] || g->limit[gpu] >= *total)
        return;
    *total = g->limit[gpu];
    *used = usage(st, gpu, g);
}
