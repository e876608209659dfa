/* This file checks whether registered processes are still alive and whether the calling process is privileged. */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "state.h"

/*
 * read_stat reads the state letter and the start time of a process. It returns 1 on success, 0 if the process does not
 * exist, and -1 if the calling process may not read /proc.
 */
static int read_stat(uint32_t pid, char *letter, uint64_t *start)
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%u/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == EACCES || errno == EPERM ? -1 : 0;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0)
        return 0;
    text[n] = 0;
    /* The command name may contain spaces and parentheses. The fields after the last ')' contain no parentheses. */
    char *p = strrchr(text, ')');
    if (!p || p[1] != ' ')
        return 0;
    *letter = p[2];
    p += 2;
    for (int field = 3; field < 22; field++) {
        p = strchr(p, ' ');
        if (!p)
            return 0;
        p++;
    }
    *start = strtoull(p, NULL, 10);
    return 1;
}

uint64_t process_start_time(uint32_t pid)
{
    char letter;
    uint64_t start;
    if (read_stat(pid, &letter, &start) != 1 || letter == 'Z' || letter == 'X')
        return 0;
    return start;
}

bool client_live(const struct client *c)
{
    if (c->pid == 0)
        return false;
    char letter;
    uint64_t start;
    switch (read_stat(c->pid, &letter, &start)) {
    case 1:
        return letter != 'Z' && letter != 'X' && start == c->start_time;
    case 0:
        /* With the hidepid mount option, /proc hides other users' processes. kill() still detects them. */
        return kill((pid_t)c->pid, 0) != 0 && errno == EPERM;
    default:
        return true;
    }
}

bool client_admin(void)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct caps[_LINUX_CAPABILITY_U32S_3];
    return syscall(SYS_capget, &head, caps) == 0 && caps[CAP_TO_INDEX(CAP_SYS_ADMIN)].effective & CAP_TO_MASK(CAP_SYS_ADMIN);
}
