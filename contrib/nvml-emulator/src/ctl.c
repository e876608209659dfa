#include "ctl.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cgroup.h"

static const struct command {
    const char *name, *arguments, *help;
    int (*run)(int argc, char **argv);
} commands[] = {
    {"init", "--board BOARD [--gpus N] [--board BOARD ...] [--dev-root DIR|none] [--proc-root DIR]\n"
             "            [--modify-device-files 0|1] [--mig on|off] [--mode-reset auto|manual|never] [--nvlink all|GPU,GPU...[;...]]\n"
             "            [--nvml-clients 0|1] [--swap-halves none|all|GPU,GPU...] [--fabric none|MS]\n"
             "            [--virtualization none|passthrough] [--persistence 0|1] [--drm 0|1] [--boot-config 0|1]\n"
             "            [--stale-mig-devices 0|1] [--driver-version VERSION] [--memory-limits misc|dmem|none] [--seed N]",
     "Create a new machine that replaces the one in the state file. Each --board begins a group of GPUs of the same model,\n"
     "and --gpus sets the number of GPUs (1). --dev-root is the directory of the device files (/dev). --proc-root is the\n"
     "directory of the driver's /proc files (default: no /proc files). --modify-device-files 0 corresponds to the driver's\n"
     "NVreg_ModifyDeviceFiles=0: nvidia-modprobe creates no capability files (1). --mig is the initial MIG mode\n"
     "(on). --mode-reset applies to GPU models before Hopper, whose MIG mode changes only after a reset: the driver resets\n"
     "the GPU itself (auto), or nvidia-smi must reset it (manual). With never, nvidia-smi cannot reset any GPU, and only\n"
     "a reboot changes the mode, as nvml.h describes for virtual machines with GPU passthrough. --nvlink connects all GPUs,\n"
     "or the GPUs of each group, by NVLinks (default: no NVLinks). --nvml-clients 1: a process is a client of all GPUs from\n"
     "nvmlInit to nvmlShutdown, which prevents resets and MIG mode changes by other processes (0; needs --dev-root).\n"
     "--swap-halves: GPUs that number the instances in the second half of the GPU first, as about half of the real GPUs with\n"
     "8 units do (every second GPU, beginning with GPU 1). --fabric: a system with NVSwitches, whose GPUs register with the\n"
     "fabric within MS ms after MIG mode is off (none). --virtualization passthrough: a virtual machine, where switching MIG\n"
     "mode off returns SUCCESS and makes the GPU unusable until a reboot (reported for an A100). --persistence and --drm:\n"
     "persistence mode is on, or nvidia_drm is loaded; both prevent resets (0). --boot-config: the driver restores the\n"
     "instances after a reboot (0). --stale-mig-devices: a process may find MIG devices that another process has destroyed (0).\n"
     "--memory-limits: the driver limits the memory of cgroups with the controller misc or dmem, for which " EMU_CONTROLLER "\n"
     "stands in (none). --driver-version: 595.45.04, or 615.71.09 with memory limits.\n"
     "The UUIDs depend on the seed (random). GPU models:",
     cmd_init},
    {"calls", "[--reset]", "Print the number of NVML calls of each kind that all processes have made, or set these numbers to 0.", cmd_calls},
    {"quirk", "NAME [off]",
     "Let the emulated driver differ from every known one, or no longer. Names: few-sms, moving-ids, ci-ids, counts,\n"
     "stale-list, destroy-busy, no-process-ids, open-monitor, mode-while-held, p2p, forgetful. src/quirk.h describes them.",
     cmd_quirk},
    {"show", "[--json]", "Draw the GPUs, and list their instances and clients.", cmd_show},
    {"create", "GPU PROFILE [START] [--no-ci]",
     "Create a GPU instance with a full-size compute instance, as an administrator does with nvidia-smi. Without\n"
     "START, the driver chooses the placement. Prints the id, the start and the UUID. --no-ci: create no compute\n"
     "instance.",
     cmd_create},
    {"destroy", "GPU GI", "Destroy an instance and its compute instances.", cmd_destroy},
    {"hold", "GPU [GI]",
     "Make a simulated client hold the instance: destroying it fails with IN_USE. Without GI: make the client hold\n"
     "the GPU, which prevents resets and MIG mode changes.",
     cmd_hold},
    {"unhold", "GPU [GI]", "Remove the simulated client of `hold`.", cmd_hold},
    {"limit", "GPU CGROUP MIB|none",
     "Set the memory limit of a cgroup on a GPU, as an administrator does with nvidia-smi. CGROUP is the path of its directory.",
     cmd_limit},
    {"latency", "[--board BOARD|--gpu N] --call CALL MS | [--board BOARD|--gpu N] realistic|off",
     "Set the duration of calls: to MS milliseconds for CALL (0 removes the setting), to the durations measured on\n"
     "real GPUs (realistic), or to no delay (off). Calls:",
     cmd_latency},
    {"fault", "add --call CALL [--gpu N] [--nth K] [--times M] (--error ERR [--after] | --kill before|torn|after | --activation ERR) |\n"
              "             list | clear",
     "Make the Kth CALL from now (1), and the following M-1 calls, fail with ERR in any process. --after: the call makes\n"
     "the change and then fails (a failed create leaves an instance behind). --kill: the calling process is killed before\n"
     "the change, during it (which has no effect), or after it but before the log is written. --activation:\n"
     "SET_MIG_MODE succeeds with the activation status ERR, and the mode remains pending. A RESET that fails with GPU_IS_LOST\n"
     "makes the GPU fall off the bus. --times 0: the fault continues until `fault clear`.",
     cmd_fault},
    {"lose", "GPU", "Simulate a GPU that has fallen off the bus: raise Xid 79, then return GPU_IS_LOST from every call.", cmd_lose},
    {"find", "GPU", "Make a lost GPU and its instances available again.", cmd_lose},
    {"xid", "GPU CODE [GI]", "Raise a critical error event.", cmd_xid},
    {"mig-mode", "GPU on|off",
     "Set the MIG mode, as nvidia-smi does. Depending on the GPU model, the change is immediate or pending until a reset.",
     cmd_mig_mode},
    {"reset", "GPU",
     "Reset a GPU: remove all instances, apply the pending MIG mode, and bring a lost GPU back. Refused while a client has\n"
     "the GPU open. Unlike nvidia-smi, the command has no latency and no faults, and ignores --mode-reset.",
     cmd_reset},
    {"reboot", "",
     "Change all GPUs as a reboot of the machine would: remove all instances, and bring lost GPUs back. GPU models before\n"
     "Hopper get the pending MIG mode; on others, MIG mode is off afterwards. With `init --boot-config 1`, the instances and\n"
     "the MIG mode remain. Refused while a process uses a GPU.",
     cmd_reboot},
    {"drift", "[--gpu N] --profile PROFILE [--name NAME] [--memory MIB]",
     "Make the driver report another name or memory size for a profile, as a new driver release may do. Without --name and\n"
     "--memory, restore the original name and memory size.",
     cmd_drift},
    {"uuid", "fresh|repeat", "Give each new instance a new MIG UUID (fresh), or give successive instances at the same place the same UUID (repeat).", cmd_uuid},
    {"check", "", "Check that the state obeys the rules of the hardware and that the device files match the state.", cmd_check},
    {"log", "[--path]", "Print the event log, or its path.", cmd_log},
    {"lock", "SECONDS", "Lock the state for SECONDS, for tests that kill the process that has locked it.", cmd_lock},
};

#define NCOMMANDS (sizeof commands / sizeof commands[0])

static const char statuses[] = "Exit status: 0 success; 1 request refused, or rule violated (check); 2 wrong usage; 3 state unreadable.\n"
                               "The state file is $NVML_EMULATOR_STATE, or " EMU_DEFAULT_STATE ".\n";

static void help_command(const struct command *c)
{
    printf("Usage: nvml-emulator %s %s\n\n%s\n", c->name, c->arguments, c->help);
    for (int i = 0; c->run == cmd_init && i < nboards; i++)
        printf("    %-18s %2u units, %s\n", boards[i].name, boards[i].grid, boards[i].device);
    for (int i = 0; c->run == cmd_latency && i < CALL_KINDS; i++)
        printf("    %s\n", call_name(i));
    printf("\n%s", statuses);
}

static void help(void)
{
    printf("nvml-emulator: control an emulated machine with NVIDIA GPUs and MIG.\n\n");
    for (size_t i = 0; i < NCOMMANDS; i++)
        printf("    nvml-emulator %s %s\n", commands[i].name, commands[i].arguments);
    printf("\n`nvml-emulator COMMAND --help` describes a command.\n%s", statuses);
}

_Noreturn void ctl_fail(int status, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fprintf(stderr, "nvml-emulator: ");
    vfprintf(stderr, fmt, ap);
    fprintf(stderr, "\n");
    va_end(ap);
    exit(status);
}

void ctl_begin(struct txn *t, enum txn_mode mode)
{
    if (txn_begin(t, state_path(), mode) != TXN_OK)
        ctl_fail(EXIT_STATE, "%s", t->error);
}

int ctl_done(struct txn *t)
{
    if (txn_commit(t) != 0)
        ctl_fail(EXIT_STATE, "%s", t->error);
    txn_end(t);
    return EXIT_OK;
}

unsigned ctl_number(const char *text, const char *what, unsigned max)
{
    char *end;
    unsigned long n = text ? strtoul(text, &end, 10) : 0;
    if (!text || *text < '0' || *text > '9' || *end || n > max)
        ctl_fail(EXIT_USAGE, "%s must be a number from 0 to %u, not %s", what, max, text ? text : "nothing");
    return (unsigned)n;
}

unsigned ctl_gpu(const struct txn *t, const char *text)
{
    if (t->st->ngpus == 0)
        ctl_fail(EXIT_USAGE, "this machine has no GPU");
    return ctl_number(text, "GPU", t->st->ngpus - 1);
}

unsigned ctl_gi(const struct txn *t, unsigned gpu, const char *text)
{
    unsigned gi = ctl_number(text, "GPU instance", EMU_MAX_GI - 1);
    if (!t->st->gpu[gpu].gi[gi].used)
        ctl_fail(EXIT_REFUSED, "GPU %u has no instance %u", gpu, gi);
    return gi;
}

int main(int argc, char **argv)
{
    if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
        help();
        return argc < 2 ? EXIT_USAGE : EXIT_OK;
    }
    for (size_t i = 0; i < NCOMMANDS; i++) {
        if (strcmp(argv[1], commands[i].name) != 0)
            continue;
        for (int k = 2; k < argc; k++)
            if (strcmp(argv[k], "--help") == 0 || strcmp(argv[k], "-h") == 0) {
                help_command(&commands[i]);
                return EXIT_OK;
            }
        return commands[i].run(argc - 1, argv + 1);
    }
    ctl_fail(EXIT_USAGE, "unknown command %s; see nvml-emulator --help", argv[1]);
}
