/*
 * This file implements the emulated nvidia-smi, which only resets GPUs. A reset is not an NVML call, so programs call
 * nvidia-smi instead.
 *
 * The exit statuses are those in nvidia-smi's manual page ("RETURN VALUE"). For a GPU that has clients, nvidia-smi
 * prints the first two lines of the emulated output and exits with 255 (NVIDIA/NVSentinel#1690,
 * NVIDIA/mig-parted#181). For an unknown GPU, nvidia-smi prints "No devices were found" and exits with 6
 * (NVIDIA/deepops#684). Unlike nvidia-smi, the emulated program prints the clients.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "faults.h"
#include "mode.h"
#include "ops.h"
#include "rules.h"

enum {
    EXIT_USAGE = 2,
    EXIT_NO_DEVICE = NVML_ERROR_NOT_FOUND,
    EXIT_NO_DRIVER = NVML_ERROR_DRIVER_NOT_LOADED,
    EXIT_OTHER = 255,
};

static const char usage[] = "Usage: nvidia-smi (-r | --gpu-reset) (-i | --id) GPU[,GPU...]\n\n"
                            "Reset GPUs of the machine that nvml-emulator emulates. GPU is an index, a UUID or a PCI bus id. This program emulates\n"
                            "no other nvidia-smi options.\n\n"
                            "Exit status: 0 success; 2 wrong usage; 3 not supported; 4 no permission; 6 no such GPU; 9 no emulated machine;\n"
                            "15 GPU is lost; 255 GPU is in use, or another error.\n";

static void begin(struct txn *t, enum txn_mode mode)
{
    if (txn_begin(t, state_path(), mode) == TXN_OK)
        return;
    fprintf(stderr, "nvidia-smi: %s\n", t->error);
    exit(EXIT_NO_DRIVER);
}

/* find returns the index of the GPU with the given index, UUID or PCI bus id, or -1. */
static int find(const struct state *st, const char *id)
{
    unsigned domain, bus, slot, function;
    char *end;
    if (strncasecmp(id, "GPU-", 4) == 0)
        return strlen(id) == 40 ? ops_find_gpu(st, id) : -1;
    if (sscanf(id, "%x:%x:%x.%x", &domain, &bus, &slot, &function) == 4)
        return domain == 0 && slot == 0 && function == 0 && bus >= rules_bus(0) && bus < rules_bus(st->ngpus) ? (int)(bus - rules_bus(0)) : -1;
    unsigned long index = strtoul(id, &end, 10);
    return *id >= '0' && *id <= '9' && !*end && index < st->ngpus ? (int)index : -1;
}

static void sleep_ms(unsigned ms)
{
    struct timespec left = {ms / 1000, (long)(ms % 1000) * 1000000};
    while (nanosleep(&left, &left) != 0)
        ;
}

/* attempt resets the GPU within a transaction. It returns the result, and the clients that prevent a reset. */
static nvmlReturn_t attempt(struct txn *t, unsigned gpu, struct mode_users *users)
{
    struct fault fault;
    if (fault_take(t, CALL_RESET, (int)gpu, &fault) != 0)
        return NVML_ERROR_UNKNOWN;
    if (fault.used && !fault.after)
        return (nvmlReturn_t)fault.rc;
    t->crash = fault.crash;
    if (t->st->gpu[gpu].lost)
        return NVML_ERROR_GPU_IS_LOST;
    if (t->st->mode_reset == MODE_RESET_NEVER)
        return NVML_ERROR_NOT_SUPPORTED;
    nvmlReturn_t rc = mode_reset(t, gpu, 0);
    if (rc == NVML_ERROR_IN_USE)
        mode_users(t->st, gpu, 0, users);
    return rc == NVML_SUCCESS ? (nvmlReturn_t)fault.rc : rc;
}

/* reset resets the GPU. Half of the latency passes before the reset, and half after it. */
static nvmlReturn_t reset(unsigned gpu, struct mode_users *users)
{
    struct txn t;
    if (!client_admin())
        return NVML_ERROR_NO_PERMISSION;
    begin(&t, TXN_READ);
    unsigned ms = rules_latency_ms(&t.st->gpu[gpu], CALL_RESET, -1);
    txn_end(&t);
    sleep_ms(ms / 2);
    begin(&t, TXN_WRITE);
    nvmlReturn_t rc = attempt(&t, gpu, users);
    struct event e = EVENT("reset");
    e.gpu = (int)gpu, e.mig = t.st->gpu[gpu].mig;
    ops_log(&t, &e, rc);
    if (txn_commit(&t) != 0) {
        fprintf(stderr, "nvidia-smi: %s\n", t.error);
        rc = NVML_ERROR_UNKNOWN;
    }
    txn_end(&t);
    sleep_ms(ms - ms / 2);
    return rc;
}

static void print_users(const struct mode_users *users)
{
    printf("\nClients of this GPU:\n");
    if (users->held)
        printf("  a simulated client (nvml-emulator hold)\n");
    for (unsigned i = 0; i < users->n; i++) {
        char path[64], name[64] = "";
        snprintf(path, sizeof path, "/proc/%u/comm", users->pid[i]);
        FILE *f = fopen(path, "re");
        if (f && fgets(name, sizeof name, f))
            name[strcspn(name, "\n")] = '\0';
        if (f)
            fclose(f);
        printf("  process %u (%s)\n", users->pid[i], *name ? name : "unknown name");
    }
}

/* run resets the GPU with the given index, UUID or PCI bus id, prints the result and returns the exit status. */
static int run(const char *id)
{
    struct txn t;
    begin(&t, TXN_READ);
    int gpu = find(t.st, id);
    txn_end(&t);
    if (gpu < 0) {
        printf("No devices were found\n");
        return EXIT_NO_DEVICE;
    }
    struct mode_users users = {0};
    nvmlReturn_t rc = reset((unsigned)gpu, &users);
    if (rc == NVML_SUCCESS) {
        printf("GPU 00000000:%02X:00.0 was successfully reset.\n", rules_bus((unsigned)gpu));
        return EXIT_SUCCESS;
    }
    printf("The following GPUs could not be reset:\n  GPU 00000000:%02X:00.0: %s\n", rules_bus((unsigned)gpu), rc_text(rc));
    if (rc == NVML_ERROR_IN_USE)
        print_users(&users);
    return rc == NVML_ERROR_NOT_SUPPORTED || rc == NVML_ERROR_NO_PERMISSION || rc == NVML_ERROR_GPU_IS_LOST ? (int)rc : EXIT_OTHER;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"gpu-reset", 0, 0, 'r'}, {"id", 1, 0, 'i'}, {"help", 0, 0, 'h'}, {0}};
    bool must_reset = false;
    char *ids = NULL;
    for (int o; (o = getopt_long(argc, argv, "ri:h", options, NULL)) != -1;) {
        switch (o) {
        case 'r': must_reset = true; break;
        case 'i': ids = optarg; break;
        case 'h': fputs(usage, stdout); return EXIT_SUCCESS;
        default: return EXIT_USAGE;
        }
    }
    if (!must_reset || !ids || optind != argc) {
        fputs(usage, stderr);
        return EXIT_USAGE;
    }
    int status = EXIT_SUCCESS;
    for (char *id = strtok(ids, ","); id; id = strtok(NULL, ",")) {
        int one = run(id);
        if (status == EXIT_SUCCESS)
            status = one;
    }
    return status;
}
