/*
 * This program tests all readers of the state file with damaged files. An input selects a valid machine, the changes to
 * its state file, whether the checksums are corrected, and the subsequent command and library calls. It does not
 * contain the state file itself, which is 200 kB large but holds little information. With -DREPLAY instead of
 * libFuzzer, the program processes each given file once.
 *
 * Accidental damage leads to wrong checksums. However, the state file has mode 0666, so any program can write a
 * damaged state with valid checksums. Neither kind of damage may crash a process.
 */
#include "fuzz.h"

#include <fcntl.h>
#include <getopt.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../../src/state.h"

extern FILE *fuzz_stderr;

/* struct copy has the layout of one of the copies of the state in the state file, and must agree with state.c. */
struct copy {
    uint64_t seq, sum;
    struct state st;
};

#define STRIDE ((sizeof(struct copy) + 4095) / 4096 * 4096)
#define COPY(file, slot) ((struct copy *)((file) + 4096 + (slot)*STRIDE))
#define FILE_SIZE (4096 + 2 * STRIDE)

static char path[64], log_path[68];
static uint8_t bases[4][FILE_SIZE], file[FILE_SIZE];

static uint64_t checksum(const struct copy *c)
{
    uint64_t sum = 0xcbf29ce484222325u ^ c->seq, word;
    for (size_t i = 0; i < sizeof c->st; i += 8) {
        memcpy(&word, (const char *)&c->st + i, 8);
        sum = (sum ^ word) * 0x100000001b3u;
        sum ^= sum >> 32;
    }
    return sum;
}

static int command(void *words)
{
    char text[256], *argv[16] = {"nvml-emulator"};
    int argc = 1;
    snprintf(text, sizeof text, "%s", (const char *)words);
    for (char *word = strtok(text, " "); word; word = strtok(NULL, " "))
        argv[argc++] = word;
    optind = 0;
    return ctl_main(argc, argv);
}

static int run(const char *words)
{
    return fuzz_process(command, (void *)words);
}

static void write_file(const uint8_t *from, size_t size)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    must(fd >= 0 && write(fd, from, size) == (ssize_t)size && close(fd) == 0);
    must(truncate(log_path, 0) == 0 || access(log_path, F_OK) != 0);
}

static void remove_files(void)
{
    unlink(path);
    unlink(log_path);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    static const char *const machines[4][5] = {
        {"init --board A100-40GB --gpus 2 --dev-root none --seed 1", "create 0 3g.20gb 4", "create 1 1g.5gb 0", "create 0 1g.5gb"},
        {"init --board A30-24GB --dev-root /d --seed 1", "create 0 4g.24gb", "hold 0 0", "fault add --call CREATE_GI --error UNKNOWN"},
        {"init --board RTX-PRO-6000-96GB --gpus 16 --dev-root /d --nvlink 0,1;5,6 --seed 1", "create 15 1g.24gb", "latency --call COUNT 5", "lose 3",
         "mig-mode 5 off"},
        {"init --board H100-80GB --gpus 1 --mig off --dev-root none --seed 1", "mig-mode 0 on", "create 0 7g.80gb --no-ci", "show"},
    };
    (void)argc, (void)argv;
    snprintf(path, sizeof path, "%s/state-fuzz.%d", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp", (int)getpid());
    snprintf(log_path, sizeof log_path, "%s.log", path);
    atexit(remove_files);
    setenv("NVML_EMULATOR_STATE", path, 1);
    must(freopen("/dev/null", "w", stdout));
    must((fuzz_stderr = fopen("/dev/null", "w")));
    for (int i = 0; i < 4; i++) {
        for (int k = 0; k < 5 && machines[i][k]; k++)
            must(run(machines[i][k]) == 0);
        int fd = open(path, O_RDONLY);
        must(fd >= 0 && read(fd, bases[i], FILE_SIZE) == (ssize_t)FILE_SIZE && close(fd) == 0);
    }
    return 0;
}

/*
 * change applies one item of the input to the file. Two bytes of the item select the position, one is the length, and
 * the others are the new content.
 */
static void change(uint8_t kind, uint8_t a, uint8_t b, const uint8_t *bytes, size_t n)
{
    size_t at, size = sizeof(struct state);
    switch (kind % 8) {
    case 0: /* anywhere in the file */
        at = ((size_t)a << 8 | b) * 61 % FILE_SIZE;
        memcpy(file + at, bytes, n < FILE_SIZE - at ? n : FILE_SIZE - at);
        return;
    case 1: /* the head of the file, and the sequence numbers */
        at = (size_t[]){0, 4096, 4096 + STRIDE}[a % 3] + b % 16;
        memcpy(file + at, bytes, n);
        return;
    case 2: at = offsetof(struct state, ngpus) + (a << 8 | b) % offsetof(struct state, gpu); break;
    case 3: at = offsetof(struct state, gpu[a % EMU_MAX_GPUS]) + b % offsetof(struct gpu_state, drift); break;
    case 4: at = offsetof(struct state, gpu[a & 1].gi[(a >> 1) % EMU_MAX_GI]) + b % sizeof(struct gi_state); break;
    case 5: at = offsetof(struct state, client[a]) + b % sizeof(struct client); break;
    case 6: at = offsetof(struct state, fault[a % EMU_MAX_FAULTS]) + b % sizeof(struct fault); break;
    default: at = a & 1 ? offsetof(struct state, log_off) + b % 32 : offsetof(struct state, gpu[0].drift[a % 16]) + b % sizeof(struct drift);
    }
    for (int slot = 0; slot < 2; slot++)
        memcpy((char *)&COPY(file, slot)->st + at, bytes, n < size - at ? n : size - at);
}

static int look(void *rc)
{
    struct txn t;
    *(enum txn_error *)rc = txn_begin(&t, path, TXN_READ);
    if (*(enum txn_error *)rc == TXN_OK) {
        txn_end(&t);
        return 0;
    }
    must(memchr(t.error, '\0', sizeof t.error) && strstr(t.error, path) && strstr(t.error, "nvml-emulator init"));
    return 1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const commands[] = {"show", "show --json", "check", "fault list", "create 0 1g.5gb", "create 0 1g.6gb 3 --no-ci",
                                           "destroy 0 5", "destroy 0 0", "hold 0 2", "lose 0", "find 0", "drift --profile 1g.5gb --name x",
                                           "reset 0", "log", "check", "hold 0", "mig-mode 0 off", "mig-mode 5 on", "reboot",
                                           "fault add --call SET_MIG_MODE --activation IN_USE"};
    enum txn_error rc;
    if (size < 4)
        return 0;
    bool seal = data[0] & 4;
    size_t length = data[0] & 8 ? (size_t)data[1] * FILE_SIZE / 255 : FILE_SIZE;
    const uint8_t *base = bases[data[0] % 4];
    memcpy(file, base, FILE_SIZE);
    for (size_t i = 4; i + 4 < size;) {
        size_t n = 1 + data[i + 3] % 16;
        n = n < size - i - 4 ? n : size - i - 4;
        change(data[i], data[i + 1], data[i + 2], data + i + 4, n);
        i += 4 + n;
    }
    for (int slot = 0; seal && slot < 2; slot++)
        COPY(file, slot)->sum = checksum(COPY(file, slot));
    write_file(file, length);

    must(fuzz_process(look, &rc) == (rc != TXN_OK));
    /* If the checksums were not corrected, the emulator must detect damage in both copies. */
    if (!seal && length == FILE_SIZE && rc == TXN_OK)
        for (int slot = 0;; slot++) {
            must(slot < 2);
            if (memcmp(COPY(file, slot), COPY(base, slot), sizeof(struct copy)) == 0)
                break;
        }
    int status = run(commands[data[2] % (sizeof commands / sizeof commands[0])]);
    must(status == 128 + 9 || (rc == TXN_OK ? status < 3 : status == 3));
    uint8_t which = data[3];
    must(fuzz_process(use_library, &which) == 128 + 9 || look(&rc) == (rc != TXN_OK));
    return 0;
}

#ifdef REPLAY
int main(int argc, char **argv)
{
    static uint8_t data[1 << 16];
    LLVMFuzzerInitialize(NULL, NULL);
    for (int i = 1; i < argc; i++) {
        FILE *f = fopen(argv[i], "re");
        if (!f) {
            perror(argv[i]);
            return 1;
        }
        size_t size = fread(data, 1, sizeof data, f);
        fclose(f);
        fprintf(stderr, "%s\n", argv[i]);
        alarm(300); /* ends the program if it hangs */
        LLVMFuzzerTestOneInput(data, size);
    }
    return argc > 1 ? 0 : 2;
}
#endif
