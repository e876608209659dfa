/*
 * This file interprets CUDA_VISIBLE_DEVICES. Sources: the table of environment variables in NVIDIA's CUDA C++
 * Programming Guide (indices, UUIDs and their first characters; an invalid entry ends the list), and PyTorch's
 * torch/cuda/__init__.py (_parse_visible_devices: with a repeated entry, no device is visible). An index counts only
 * the GPUs whose device file the process may open, because the driver does not enumerate any others. Slurm with
 * ConstrainDevices therefore numbers each job's GPUs from 0.
 *
 * cuda-process rejects two kinds of lists that some drivers accept: several MIG devices (accepted since driver R570),
 * and MIG devices mixed with whole GPUs.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "cuda.h"
#include "device.h"
#include "ops.h"
#include "rules.h"

static bool is_uuid(const char *text)
{
    return strncasecmp(text, "GPU-", 4) == 0;
}

static bool is_mig(const char *text)
{
    return strncasecmp(text, "MIG-", 4) == 0;
}

/* may_open reports whether the process may open the GPU's device file, or true if there are no device files. */
static bool may_open(const struct state *st, unsigned gpu)
{
    char path[512];
    if (!st->dev_root[0])
        return true;
    device_gpu_path(st, gpu, path, sizeof path);
    return device_may_open(path);
}

/* find_gpu returns the GPU of an entry, or -1 for an invalid entry. */
static int find_gpu(const struct state *st, const char *entry)
{
    char *end;
    if (is_uuid(entry))
        return ops_find_gpu(st, entry);
    unsigned long index = strtoul(entry, &end, 10);
    if (*entry < '0' || *entry > '9' || *end)
        return -1;
    for (unsigned gpu = 0; gpu < st->ngpus; gpu++)
        if (may_open(st, gpu) && index-- == 0)
            return (int)gpu;
    return -1;
}

static unsigned mig_device(const struct state *st, const char *uuid, struct device *d)
{
    if (strchr(uuid, ','))
        cuda_fail(EXIT_NO_DEVICE, "CUDA_VISIBLE_DEVICES must contain one MIG UUID or only whole GPUs, but is %s", uuid);
    if (!ops_find_ci(st, uuid, &d->gpu, &d->gi, &d->ci))
        cuda_fail(EXIT_NO_DEVICE, "no CUDA-capable device: %s does not exist", uuid);
    return 1;
}

/* check_openable ends the program if the process may not open a device file that CUDA needs for the device. */
static void check_openable(const struct state *st, const struct device *d)
{
    char path[4][512];
    unsigned n = 2;
    if (!st->dev_root[0])
        return;
    snprintf(path[0], sizeof path[0], "%s/nvidiactl", st->dev_root);
    device_gpu_path(st, d->gpu, path[1], sizeof path[1]);
    if (d->gi != EMU_WHOLE) {
        device_cap_path(st, d->gpu, d->gi, -1, path[n++], sizeof path[0]);
        device_cap_path(st, d->gpu, d->gi, (int)d->ci, path[n++], sizeof path[0]);
    }
    for (unsigned i = 0; i < n; i++)
        if (!device_may_open(path[i]))
            cuda_fail(EXIT_NO_DEVICE, "no CUDA-capable device: %s: %s", path[i], strerror(errno));
}

static unsigned whole_gpus(const struct state *st, const char *list, struct device *devices)
{
    char copy[1024], *rest = copy;
    unsigned n = 0;
    if (strlen(list) >= sizeof copy)
        cuda_fail(EXIT_NO_DEVICE, "CUDA_VISIBLE_DEVICES is too long");
    strcpy(copy, list);
    for (char *entry; (entry = strsep(&rest, ","));) {
        if (is_mig(entry))
            cuda_fail(EXIT_NO_DEVICE, "CUDA_VISIBLE_DEVICES must contain one MIG UUID or only whole GPUs, but is %s", list);
        int gpu = is_uuid(entry) == is_uuid(list) ? find_gpu(st, entry) : -1;
        if (gpu < 0) {
            fprintf(stderr, "cuda-process: CUDA_VISIBLE_DEVICES: CUDA ignores the invalid entry \"%s\" and all entries after it\n", entry);
            break;
        }
        for (unsigned i = 0; i < n; i++)
            if (devices[i].gpu == (unsigned)gpu)
                cuda_fail(EXIT_NO_DEVICE, "no CUDA-capable device: CUDA_VISIBLE_DEVICES contains GPU %d twice", gpu);
        devices[n++] = (struct device){.gpu = (unsigned)gpu, .gi = EMU_WHOLE, .ci = EMU_WHOLE};
    }
    if (n == 0)
        cuda_fail(EXIT_NO_DEVICE, "no CUDA-capable device: CUDA_VISIBLE_DEVICES is %s", list);
    return n;
}

unsigned cuda_visible(const struct state *st, const char *list, struct device devices[EMU_MAX_GPUS])
{
    if (!list)
        cuda_fail(EXIT_NO_DEVICE, "CUDA_VISIBLE_DEVICES must contain one MIG UUID or whole GPUs, but is not set");
    unsigned n = is_mig(list) ? mig_device(st, list, devices) : whole_gpus(st, list, devices);
    for (unsigned i = 0; i < n; i++) {
        const struct gpu_state *g = &st->gpu[devices[i].gpu];
        if (g->lost)
            cuda_fail(EXIT_NO_DEVICE, "no CUDA-capable device: GPU %u is lost", devices[i].gpu);
        if (devices[i].gi == EMU_WHOLE && g->mig)
            cuda_fail(EXIT_NO_DEVICE, "no CUDA-capable device: MIG mode is on for GPU %u", devices[i].gpu);
        check_openable(st, &devices[i]);
    }
    return n;
}

void cuda_expect_gpus(const struct state *st, const struct device *devices, unsigned count, unsigned n)
{
    bool visible[EMU_MAX_GPUS] = {false}, wrong = false;
    if (!st->dev_root[0])
        cuda_fail(EXIT_USAGE, "--expect-gpus needs a machine with device files (nvml-emulator init --dev-root)");
    unsigned gpus = 0;
    for (unsigned i = 0; i < count; i++)
        if (devices[i].gi == EMU_WHOLE)
            visible[devices[i].gpu] = true, gpus++;
    if (gpus != n) {
        fprintf(stderr, "cuda-process: %u whole GPUs are visible, not %u:", gpus, n);
        for (unsigned gpu = 0; gpu < st->ngpus; gpu++)
            if (visible[gpu])
                fprintf(stderr, " GPU %u", gpu);
        fprintf(stderr, "\n");
        wrong = true;
    }
    for (unsigned gpu = 0; gpu < st->ngpus; gpu++)
        if (!visible[gpu] && may_open(st, gpu)) {
            fprintf(stderr, "cuda-process: GPU %u is not visible, but this process may open its device file %s/nvidia%u\n", gpu,
                    st->dev_root, gpu);
            wrong = true;
        }
    if (wrong)
        cuda_fail(EXIT_UNEXPECTED, "CUDA_VISIBLE_DEVICES or the device files do not match --expect-gpus %u", n);
}
