#include "device.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "proc.h"
#include "rules.h"

/* The minor numbers of capability files are less than 3 + 135 * 16. The other device files use larger minor numbers. */
#define MINOR_GPU 60000
#define MINOR_CTL 60255

/* make_node creates a device file, or restores the owner and mode of an existing one, as nvidia-modprobe does. */
static int make_node(const char *path, unsigned minor, mode_t mode)
{
    if (mknod(path, S_IFCHR | mode, makedev(EMU_MAJOR, minor)) != 0 && (errno != EEXIST || lchown(path, 0, 0) != 0))
        return -1;
    return chmod(path, mode); /* mknod applies the umask */
}

static bool ours(const char *path)
{
    struct stat sb;
    return lstat(path, &sb) == 0 && S_ISCHR(sb.st_mode) && major(sb.st_rdev) == EMU_MAJOR;
}

static void remove_ours(const char *dir)
{
    DIR *d = opendir(dir);
    if (!d)
        return;
    for (struct dirent *e; (e = readdir(d));) {
        char path[600];
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        if (strncmp(e->d_name, "nvidia", 6) == 0 && ours(path))
            unlink(path);
    }
    closedir(d);
}

int device_setup(const struct state *st, char *error, size_t size)
{
    if (!st->dev_root[0])
        return 0;
    char path[512];
    snprintf(path, sizeof path, "%s/nvidiactl", st->dev_root);
    if (access(path, F_OK) == 0 && !ours(path)) {
        snprintf(error, size, "%s belongs to a real driver; choose another directory with --dev-root", path);
        return -1;
    }
    char caps[300];
    snprintf(caps, sizeof caps, "%s/nvidia-caps", st->dev_root);
    const char *what = caps;
    if ((mkdir(st->dev_root, 0755) != 0 && errno != EEXIST) || (mkdir(caps, 0755) != 0 && errno != EEXIST))
        goto fail;
    remove_ours(caps);
    remove_ours(st->dev_root);
    what = path;
    if (make_node(path, MINOR_CTL, 0666) != 0)
        goto fail;
    for (unsigned i = 0; i < st->ngpus; i++) {
        device_gpu_path(st, i, path, sizeof path);
        if (make_node(path, MINOR_GPU + i, 0666) != 0)
            goto fail;
    }
    /*
     * These capabilities belong to no instance: nvidia-cap1 allows changing the MIG configuration, and nvidia-cap2
     * allows monitoring. On a system with NVSwitches, Fabric Manager needs nvidia-cap0. nvidia-modprobe creates their
     * files.
     */
    for (unsigned i = st->host & EMU_FABRIC ? EMU_CAP_FABRIC : EMU_CAP_CONFIG; i <= EMU_CAP_MONITOR && !st->keep_device_files; i++) {
        snprintf(path, sizeof path, "%s/nvidia-cap%u", caps, i);
        if (make_node(path, i, EMU_CAP_MODE(i)) != 0)
            goto fail;
    }
    return 0;
fail:
    snprintf(error, size, "couldn't create %s: %s; run as root, or use --dev-root none", what, strerror(errno));
    return -1;
}

void device_cap_path(const struct state *st, unsigned gpu, unsigned gi, int ci, char *path, size_t size)
{
    snprintf(path, size, "%s/nvidia-caps/nvidia-cap%u", st->dev_root, rules_cap_minor(gpu, gi, ci));
}

int device_add_cap(const struct state *st, unsigned gpu, unsigned gi, int ci)
{
    if (!st->dev_root[0] || st->keep_device_files)
        return 0;
    char path[512];
    device_cap_path(st, gpu, gi, ci, path, sizeof path);
    unsigned minor = rules_cap_minor(gpu, gi, ci);
    return make_node(path, minor, EMU_CAP_MODE(minor));
}

bool device_may_open(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return errno == ENXIO; /* a process with access gets ENXIO, because the device has no driver */
    close(fd);
    return true;
}

bool device_may_use_system(const struct state *st, unsigned minor)
{
    char path[512];
    struct stat sb;
    if (!st->dev_root[0])
        return true;
    snprintf(path, sizeof path, "%s/nvidia-caps/nvidia-cap%u", st->dev_root, minor);
    if (geteuid() == 0 && proc_modifies(st, minor) &&
        (lstat(path, &sb) != 0 || sb.st_uid != 0 || sb.st_gid != 0 || (sb.st_mode & 07777) != EMU_CAP_MODE(minor)))
        make_node(path, minor, EMU_CAP_MODE(minor));
    return device_may_open(path);
}

bool device_may_use(const struct state *st, unsigned gpu, unsigned gi, int ci)
{
    return device_may_use_system(st, rules_cap_minor(gpu, gi, ci));
}

void device_gpu_path(const struct state *st, unsigned gpu, char *path, size_t size)
{
    snprintf(path, size, "%s/nvidia%u", st->dev_root, gpu);
}

int device_hold(const struct state *st, unsigned gpu)
{
    char path[512];
    if (!st->dev_root[0])
        return -1;
    device_gpu_path(st, gpu, path, sizeof path);
    return device_may_open(path) ? open(path, O_PATH | O_CLOEXEC) : -1;
}

/* has_open reports whether the process has a descriptor for the file. */
static bool has_open(const char *pid, const struct stat *file)
{
    char path[600];
    snprintf(path, sizeof path, "/proc/%s/fd", pid);
    DIR *d = opendir(path);
    if (!d)
        return false;
    bool found = false;
    for (struct dirent *e; !found && (e = readdir(d));) {
        struct stat sb;
        if (fstatat(dirfd(d), e->d_name, &sb, 0) == 0)
            found = sb.st_dev == file->st_dev && sb.st_ino == file->st_ino;
    }
    closedir(d);
    return found;
}

unsigned device_holders(const struct state *st, unsigned gpu, uint32_t *pid, unsigned max)
{
    char path[512];
    struct stat file;
    if (!st->dev_root[0])
        return 0;
    /* The inodes are compared, because several emulated machines on one computer have the same device numbers. */
    device_gpu_path(st, gpu, path, sizeof path);
    DIR *proc = stat(path, &file) == 0 ? opendir("/proc") : NULL;
    if (!proc)
        return 0;
    unsigned n = 0;
    for (struct dirent *e; n < max && (e = readdir(proc));)
        if (e->d_name[0] >= '1' && e->d_name[0] <= '9' && has_open(e->d_name, &file))
            pid[n++] = (uint32_t)strtoul(e->d_name, NULL, 10);
    closedir(proc);
    return n;
}
