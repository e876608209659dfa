/* This file implements the init subcommand, which creates the emulated machine. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "calls.h"
#include "cgroup.h"
#include "ctl.h"
#include "device.h"
#include "proc.h"
#include "quirk.h"

/*
 * make_default_folder creates the directory for the default state file. For any other path, the user has to create it.
 */
static void make_default_folder(void)
{
    if (strcmp(state_path(), EMU_DEFAULT_STATE) == 0)
        mkdir("/run/nvml-emulator", 0755);
}

static uint32_t mode_reset_by_name(const char *name)
{
    static const char *const names[] = {[MODE_RESET_AUTO] = "auto", [MODE_RESET_MANUAL] = "manual", [MODE_RESET_NEVER] = "never"};
    for (uint32_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(name, names[i]) == 0)
            return i;
    ctl_fail(EXIT_USAGE, "--mode-reset must be auto, manual or never, not %s", name);
}

static uint32_t memory_limits_by_name(const char *name)
{
    static const char *const names[] = {[LIMITS_NONE] = "none", [LIMITS_MISC] = "misc", [LIMITS_DMEM] = "dmem"};
    for (uint32_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(name, names[i]) == 0)
            return i;
    ctl_fail(EXIT_USAGE, "--memory-limits must be misc, dmem or none, not %s", name);
}

static void set_driver_version(struct state *st, const char *version)
{
    if (strlen(version) >= sizeof st->driver_version || *version < '1' || *version > '9' || version[strspn(version, "0123456789.")])
        ctl_fail(EXIT_USAGE, "--driver-version must be numbers and dots, for example 615.71.09, not %s", version);
    strcpy(st->driver_version, version);
}

/* connect_group connects the GPUs of one group of --nvlink, such as "0,1", and returns the rest of the string. */
static const char *connect_group(struct state *st, const char *text)
{
    uint16_t group = 0;
    for (;; text++) {
        char *end;
        unsigned long gpu = strtoul(text, &end, 10);
        if (*text < '0' || *text > '9' || gpu >= st->ngpus)
            ctl_fail(EXIT_USAGE, "--nvlink must be all or groups of GPUs such as \"0,1;2,3\"; the machine has %u GPUs", st->ngpus);
        group |= (uint16_t)(1u << gpu);
        text = end;
        if (*text != ',')
            break;
    }
    for (unsigned i = 0; i < st->ngpus; i++)
        if (group >> i & 1)
            st->gpu[i].nvlink |= group & (uint16_t) ~(1u << i);
    return text;
}

static void connect_gpus(struct state *st, const char *text)
{
    char all[4 * EMU_MAX_GPUS] = "";
    if (strcmp(text, "all") == 0) {
        for (unsigned i = 0; i < st->ngpus; i++)
            snprintf(all + strlen(all), sizeof all - strlen(all), "%s%u", i ? "," : "", i);
        text = all;
    }
    while (*(text = connect_group(st, text)) == ';')
        text++;
    if (*text)
        ctl_fail(EXIT_USAGE, "--nvlink: unexpected text %s", text);
}

/*
 * swap_halves sets the GPUs whose ids of instances begin in the second half. Only 8-unit GPUs with this order are known. By
 * default, every second GPU has it, because about half of the known 8-unit GPUs do, and GPUs of one machine may differ.
 */
static void swap_halves(struct state *st, const char *text)
{
    bool listed[EMU_MAX_GPUS] = {false};
    if (text && *text >= '0' && *text <= '9')
        for (char *end;; text = end + 1) {
            unsigned long gpu = strtoul(text, &end, 10);
            if (*text < '0' || *text > '9' || gpu >= st->ngpus || (*end && *end != ','))
                ctl_fail(EXIT_USAGE, "--swap-halves must be none, all or GPUs such as 0,2; the machine has %u GPUs", st->ngpus);
            listed[gpu] = true;
            if (!*end)
                break;
        }
    else if (text && strcmp(text, "none") != 0 && strcmp(text, "all") != 0)
        ctl_fail(EXIT_USAGE, "--swap-halves must be none, all or GPUs such as 0,2, not %s", text);
    for (unsigned i = 0; i < st->ngpus; i++)
        st->gpu[i].swapped = boards[st->gpu[i].board].grid == 8 && (!text ? i % 2 == 1 : *text == 'a' || listed[i]);
}

int cmd_init(int argc, char **argv)
{
    static const struct option options[] = {
        {"board", 1, 0, 'b'},
        {"gpus", 1, 0, 'g'},
        {"dev-root", 1, 0, 'd'},
        {"proc-root", 1, 0, 'p'},
        {"mig", 1, 0, 'm'},
        {"seed", 1, 0, 's'},
        {"modify-device-files", 1, 0, 'k'},
        {"mode-reset", 1, 0, 'r'},
        {"nvlink", 1, 0, 'n'},
        {"nvml-clients", 1, 0, 'c'},
        {"swap-halves", 1, 0, 'w'},
        {"fabric", 1, 0, 'f'},
        {"virtualization", 1, 0, 'v'},
        {"persistence", 1, 0, 'P'},
        {"drm", 1, 0, 'D'},
        {"boot-config", 1, 0, 'B'},
        {"stale-mig-devices", 1, 0, 'S'},
        {"driver-version", 1, 0, 'V'},
        {"memory-limits", 1, 0, 'L'},
        {0},
    };
    struct state st = {0};
    const char *nvlink = NULL, *swapped = NULL;
    int board = -1, pending = 0, mig = 1;
    unsigned persistence = 0;
    unsigned count[EMU_MAX_GPUS] = {0}, kind[EMU_MAX_GPUS] = {0}, groups = 0;
    strcpy(st.dev_root, "/dev");
    if (getrandom(&st.seed, sizeof st.seed, 0) != sizeof st.seed)
        ctl_fail(EXIT_REFUSED, "couldn't read random numbers; set --seed");
    for (int o; (o = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        switch (o) {
        case 'b':
            if (groups == EMU_MAX_GPUS)
                ctl_fail(EXIT_USAGE, "at most %d GPUs", EMU_MAX_GPUS);
            board = ctl_board(optarg);
            kind[groups] = (unsigned)board;
            count[groups++] = 1;
            pending = 1;
            break;
        case 'g':
            if (!pending)
                ctl_fail(EXIT_USAGE, "--gpus must follow the --board whose number of GPUs it sets");
            count[groups - 1] = ctl_number(optarg, "--gpus", EMU_MAX_GPUS);
            pending = 0;
            break;
        case 'd':
            if (strlen(optarg) >= sizeof st.dev_root)
                ctl_fail(EXIT_USAGE, "--dev-root is too long");
            strcpy(st.dev_root, strcmp(optarg, "none") == 0 ? "" : optarg);
            break;
        case 'p':
            if (strlen(optarg) >= sizeof st.proc_root)
                ctl_fail(EXIT_USAGE, "--proc-root is too long");
            strcpy(st.proc_root, optarg);
            break;
        case 'k':
            st.keep_device_files = !ctl_number(optarg, "--modify-device-files", 1);
            break;
        case 'm':
            if (strcmp(optarg, "on") != 0 && strcmp(optarg, "off") != 0)
                ctl_fail(EXIT_USAGE, "--mig must be on or off");
            mig = strcmp(optarg, "on") == 0;
            break;
        case 'r': st.mode_reset = mode_reset_by_name(optarg); break;
        case 'n': nvlink = optarg; break;
        case 'w': swapped = optarg; break;
        case 'f':
            if (strcmp(optarg, "none") == 0)
                break;
            st.host |= EMU_FABRIC;
            st.fabric_delay_ms = ctl_number(optarg, "--fabric", 600000);
            break;
        case 'v':
            if (strcmp(optarg, "none") != 0 && strcmp(optarg, "passthrough") != 0)
                ctl_fail(EXIT_USAGE, "--virtualization must be none or passthrough, not %s", optarg);
            st.host |= *optarg == 'p' ? EMU_PASSTHROUGH : 0;
            break;
        case 'P': persistence = ctl_number(optarg, "--persistence", 1); break;
        case 'D': st.host |= ctl_number(optarg, "--drm", 1) ? EMU_DRM : 0; break;
        case 'B': st.host |= ctl_number(optarg, "--boot-config", 1) ? EMU_BOOT_CONFIG : 0; break;
        case 'S': st.host |= ctl_number(optarg, "--stale-mig-devices", 1) ? EMU_STALE : 0; break;
        case 'V': set_driver_version(&st, optarg); break;
        case 'L': st.memory_limits = memory_limits_by_name(optarg); break;
        case 'c': st.nvml_clients = ctl_number(optarg, "--nvml-clients", 1); break;
        case 's':
            st.seed = ctl_number(optarg, "--seed", 4000000000u);
            break;
        default:
            return EXIT_USAGE;
        }
    }
    if (board < 0 || optind != argc)
        ctl_fail(EXIT_USAGE, "init needs --board; see nvml-emulator init --help");
    for (unsigned i = 0; i < groups; i++)
        for (unsigned k = 0; k < count[i]; k++) {
            if (st.ngpus == EMU_MAX_GPUS)
                ctl_fail(EXIT_USAGE, "at most %d GPUs", EMU_MAX_GPUS);
            struct gpu_state *g = &st.gpu[st.ngpus++];
            g->board = kind[i];
            snprintf(g->board_name, sizeof g->board_name, "%s", boards[kind[i]].name);
            g->mig = g->mig_pending = (uint8_t)(mig && boards[kind[i]].nprofiles);
            g->persistence = (uint8_t)persistence;
            ops_make_uuid(&st, 0, st.ngpus, g->uuid);
        }
    if (!st.driver_version[0])
        strcpy(st.driver_version, st.memory_limits ? "615.71.09" : "595.45.04");
    if (st.memory_limits && driver_release(&st) < EMU_LIMITS_RELEASE)
        ctl_fail(EXIT_USAGE, "--memory-limits needs a driver of release %d or later, not %s", EMU_LIMITS_RELEASE, st.driver_version);
    if (nvlink)
        connect_gpus(&st, nvlink);
    swap_halves(&st, swapped);
    make_default_folder();
    struct txn t;
    if (txn_create(&t, state_path()) != TXN_OK)
        ctl_fail(EXIT_STATE, "%s", t.error);
    char error[512];
    quirk_clear();
    if (calls_reset(state_path()) != 0)
        ctl_fail(EXIT_STATE, "couldn't create %s.calls", state_path());
    if (device_setup(&st, error, sizeof error) != 0 || proc_setup(&st, error, sizeof error) != 0)
        ctl_fail(EXIT_REFUSED, "%s", error);
    *t.st = st;
    return ctl_done(&t);
}
