#include "state.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "device.h"
#include "proc.h"
#include "ops.h"

struct header {
    char magic[8];
    uint32_t version, size;
};

struct copy {
    uint64_t seq, sum;
    struct state st;
};

_Static_assert(sizeof(struct state) % 8 == 0, "the checksum works on 8-byte words");

#define COPY_AT(slot) ((off_t)4096 + (off_t)(slot) * (off_t)((sizeof(struct copy) + 4095) / 4096 * 4096))

static const char magic[8] = "NVMLEMU";

const char *state_path(void)
{
    const char *path = getenv("NVML_EMULATOR_STATE");
    return path && *path ? path : EMU_DEFAULT_STATE;
}

static uint64_t checksum(const struct copy *c)
{
    const unsigned char *p = (const unsigned char *)&c->st;
    uint64_t sum = 0xcbf29ce484222325u ^ c->seq;
    for (size_t i = 0; i < sizeof c->st; i += 8) {
        uint64_t word;
        memcpy(&word, p + i, 8);
        sum = (sum ^ word) * 0x100000001b3u;
        sum ^= sum >> 32;
    }
    return sum;
}

static enum txn_error fail(struct txn *t, enum txn_error code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(t->error, sizeof t->error, fmt, ap);
    va_end(ap);
    txn_end(t);
    return code;
}

static enum txn_error open_locked(struct txn *t, const char *path, int flags, int lock)
{
    *t = (struct txn){.fd = -1};
    snprintf(t->path, sizeof t->path, "%s", path);
    t->fd = open(path, flags | O_CLOEXEC, 0666);
    if (t->fd < 0) {
        if (errno == ENOENT)
            return fail(t, TXN_MISSING, "%s does not exist; create it with: nvml-emulator init", path);
        return fail(t, TXN_DENIED, "%s: %s", path, strerror(errno));
    }
    while (flock(t->fd, lock) != 0)
        if (errno != EINTR)
            return fail(t, TXN_DENIED, "%s: lock: %s", path, strerror(errno));
    t->copy = calloc(1, sizeof *t->copy);
    if (!t->copy)
        return fail(t, TXN_DENIED, "out of memory");
    t->st = &t->copy->st;
    return TXN_OK;
}

static bool read_copy(struct txn *t, int slot)
{
    if (pread(t->fd, t->copy, sizeof *t->copy, COPY_AT(slot)) != (ssize_t)sizeof *t->copy)
        return false;
    t->slot = slot;
    return t->copy->seq != 0 && t->copy->sum == checksum(t->copy);
}

/*
 * put_log writes the state's pending log lines to the log file. With repair, it writes them only if a killed process
 * has not done so completely, and then clears them.
 */
static int put_log(struct txn *t, bool repair)
{
    char path[600];
    snprintf(path, sizeof path, "%s.log", t->path);
    /*
     * The first attempt does not use O_CREAT, because fs.protected_regular forbids O_CREAT on another user's file in a
     * sticky directory.
     */
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    struct stat sb;
    if (fd < 0 || fstat(fd, &sb) != 0) {
        snprintf(t->error, sizeof t->error, "%s: %s", path, strerror(errno));
        if (fd >= 0)
            close(fd);
        return -1;
    }
    struct state *st = t->st;
    int rc = 0;
    /* If the log ends before log_off, another program has truncated it, and put_log does not write the lines. */
    bool cut_short = (uint64_t)sb.st_size >= st->log_off && (uint64_t)sb.st_size < st->log_off + st->log_len;
    if (st->log_len && (!repair || cut_short) &&
        pwrite(fd, st->log, st->log_len, (off_t)st->log_off) != (ssize_t)st->log_len) {
        snprintf(t->error, sizeof t->error, "%s: %s", path, strerror(errno));
        rc = -1;
    }
    if (repair && fstat(fd, &sb) == 0) {
        st->log_off = (uint64_t)sb.st_size;
        st->log_len = 0;
        memset(st->log, 0, sizeof st->log);
    }
    close(fd);
    return rc;
}

enum txn_error txn_begin(struct txn *t, const char *path, enum txn_mode mode)
{
    enum txn_error rc = open_locked(t, path, mode == TXN_WRITE ? O_RDWR : O_RDONLY, mode == TXN_WRITE ? LOCK_EX : LOCK_SH);
    if (rc != TXN_OK)
        return rc;
    struct header h;
    if (pread(t->fd, &h, sizeof h, 0) != (ssize_t)sizeof h || memcmp(h.magic, magic, sizeof magic) != 0)
        return fail(t, TXN_DAMAGED, "%s is not a state file of the NVML emulator; create a new state with: nvml-emulator init", path);
    if (h.version != EMU_VERSION || h.size != sizeof(struct state))
        return fail(t, TXN_WRONG_VERSION,
                    "%s belongs to another version of the NVML emulator (format %u, %u bytes; this version reads format %u, "
                    "%zu bytes); create a new state with: nvml-emulator init",
                    path, h.version, h.size, EMU_VERSION, sizeof(struct state));
    uint64_t seq[2] = {0, 0};
    for (int i = 0; i < 2; i++)
        if (pread(t->fd, &seq[i], sizeof seq[i], COPY_AT(i)) != (ssize_t)sizeof seq[i])
            seq[i] = 0;
    int newer = seq[1] > seq[0];
    if (!read_copy(t, newer) && !read_copy(t, !newer))
        return fail(t, TXN_DAMAGED, "%s is damaged (no copy of the state has a valid checksum); create a new state with: nvml-emulator init", path);
    if (!state_sane(t->st))
        return fail(t, TXN_DAMAGED, "%s contains an invalid state for this build; create a new state with: nvml-emulator init", path);
    if (mode == TXN_WRITE) {
        if (put_log(t, true) != 0) {
            txn_end(t);
            return TXN_DENIED;
        }
        proc_sweep_caps(t->st);
        ops_reap(t);
    }
    return TXN_OK;
}

enum txn_error txn_create(struct txn *t, const char *path)
{
    enum txn_error rc = open_locked(t, path, O_RDWR | O_CREAT, LOCK_EX);
    if (rc != TXN_OK)
        return rc;
    char log[600];
    snprintf(log, sizeof log, "%s.log", path);
    int fd = open(log, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    struct header h = {.version = EMU_VERSION, .size = sizeof(struct state)};
    memcpy(h.magic, magic, sizeof magic);
    /* The mode is 0666 regardless of the umask, because the CUDA processes of all users register themselves in the
     * state. */
    bool ok = fd >= 0 && fchmod(fd, 0666) == 0 && fchmod(t->fd, 0666) == 0 && ftruncate(t->fd, 0) == 0 &&
              ftruncate(t->fd, COPY_AT(2)) == 0 && pwrite(t->fd, &h, sizeof h, 0) == (ssize_t)sizeof h;
    int saved = errno;
    if (fd >= 0)
        close(fd);
    if (!ok)
        return fail(t, TXN_DENIED, "%s: %s", path, strerror(saved));
    return TXN_OK;
}

void txn_log(struct txn *t, const char *fmt, ...)
{
    struct state *st = t->st;
    size_t room = sizeof st->log - st->log_len;
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(st->log + st->log_len, room, fmt, ap);
    va_end(ap);
    if (n < 0 || (size_t)n >= room) {
        fprintf(stderr, "nvml-emulator: log line dropped: the log buffer of the transaction is full\n");
        memset(st->log + st->log_len, 0, room);
        return;
    }
    st->log_len += (uint32_t)n;
}

static void die_here(void)
{
    kill(getpid(), SIGKILL);
    for (;;)
        pause();
}

int txn_commit(struct txn *t)
{
    enum crash crash = t->crash;
    if (crash == CRASH_BEFORE)
        die_here();
    t->copy->seq++;
    t->copy->sum = checksum(t->copy);
    int slot = !t->slot;
    size_t want = crash == CRASH_TORN ? sizeof *t->copy / 2 : sizeof *t->copy;
    if (pwrite(t->fd, t->copy, want, COPY_AT(slot)) != (ssize_t)want) {
        snprintf(t->error, sizeof t->error, "%s: %s", t->path, strerror(errno));
        return -1;
    }
    if (crash == CRASH_TORN || crash == CRASH_AFTER)
        die_here();
    t->slot = slot;
    for (; t->ndoomed; t->ndoomed--)
        proc_remove_cap(t->st, t->doomed[t->ndoomed - 1]);
    if (put_log(t, false) != 0)
        return -1;
    t->st->log_off += t->st->log_len;
    t->st->log_len = 0;
    return 0;
}

void txn_end(struct txn *t)
{
    free(t->copy);
    t->copy = NULL;
    t->st = NULL;
    if (t->fd >= 0)
        close(t->fd);
    t->fd = -1;
}
