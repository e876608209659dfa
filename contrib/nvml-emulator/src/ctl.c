#include "ctl.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct command {
    const char *name, *arguments, *help;
    int (*run)(int argc, char **argv);
} commands[] = {
    {"init", "--board BOARD [--gpus N] [--board BOARD ...] [--dev-root DIR|none] [--proc-root DIR]\n"
     "            [--modify-device-files 0|1] [--mig on|off] [--seed N]",
     "Make a new machine, in place of any that stands in the state file. Each --board starts a group of GPUs and\n"
     "--gpus says how many (1). Device files go under DIR (/dev); what the driver shows of them in /proc under the\n"
     "other DIR (nowhere). --modify-device-files 0 is the driver's NVreg_ModifyDeviceFiles=0: it neither makes nor\n"
     "removes cap files (1). UUIDs follow from the seed (random). Boards:", cmd_init},
    {"show", "[--json]", "Draw the GPUs, and list instances, clients and faults.", cmd_show},
    {"create", "GPU PROFILE [START] [--no-ci]",
     "Make an instance as an admin would with nvidia-smi, by default where the driver would put it, with a compute\n"
     "instance of its full size. Prints its id and the UUID.", cmd_create},
    {"destroy", "GPU GI", "Destroy an instance and its compute instances.", cmd_destroy},
    {"hold", "GPU GI", "Let an artificial client hold the instance: destroying it fails with IN_USE.", cmd_hold},
    {"unhold", "GPU GI", "End that.", cmd_hold},
    {"latency", "[--board BOARD|--gpu N] --call CALL MS | [--board BOARD|--gpu N] realistic|off",
     "Let calls take time: MS milliseconds for CALL (0: none of its own), what was measured on real boards, or nothing.\n"
     "Calls:", cmd_latency},
    {"fault", "add --call CALL [--gpu N] [--nth K] [--times M] (--error ERR [--after] | --kill before|torn|after) | list | clear",
     "Let the Kth CALL from now (1), and the M-1 after it, fail with ERR, in whatever process. --after: the work is done\n"
     "all the same (a failed create that leaves an instance behind). --kill: the calling process is killed before its\n"
     "change, while writing it (which undoes it), or after it and before the log. --times 0: until `fault clear`.", cmd_fault},
    {"lose", "GPU", "Let the GPU fall off the bus: Xid 79, then every call answers GPU_IS_LOST.", cmd_lose},
    {"find", "GPU", "Bring it back, with its instances.", cmd_lose},
    {"xid", "GPU CODE [GI]", "Raise a critical error event.", cmd_xid},
    {"mig-mode", "GPU on|off", "Set the mode as nvidia-smi does: at once, or pending until a reset, as the board has it.", cmd_mig_mode},
    {"reset", "GPU", "Reset: all instances go, the pending mode comes, a lost GPU is back. Refused while a process uses the GPU.",
     cmd_reset},
    {"drift", "[--gpu N] --profile PROFILE [--name NAME] [--memory MIB]",
     "Let the driver call a profile by another name, or report another memory size, as releases of it do. Neither: undo.", cmd_drift},
    {"uuid", "fresh|repeat", "Whether an instance made again at the same place gets a new MIG UUID or the same one.", cmd_uuid},
    {"check", "", "Check that the state obeys the rules of the hardware and that the device files fit it.", cmd_check},
    {"log", "[--path]", "Print the event log, or where it is.", cmd_log},
    {"lock", "SECONDS", "Hold the lock of the state for so long (for tests of what happens when the holder is killed).", cmd_lock},
};

#define NCOMMANDS (sizeof commands / sizeof commands[0])

static const char statuses[] = "Exit status: 0 done; 1 refused, or a rule is broken (check); 2 wrong usage; 3 the state cannot be read.\n"
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
    printf("nvml-emulator: control an emulated machine with NVIDIA GPUs and MIG\n\n");
    for (size_t i = 0; i < NCOMMANDS; i++)
        printf("    nvml-emulator %s %s\n", commands[i].name, commands[i].arguments);
    printf("\n`nvml-emulator COMMAND --help` says more.\n%s", statuses);
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
