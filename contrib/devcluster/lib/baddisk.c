/*
 * baddisk.so is preloaded into the agents of a chaos campaign. While the file /run/bad-disk exists, which contains an
 * error number and a percentage, this share of the writes to the agent's ledger fails with the error, and with EIO also
 * of the reads. SQLite calls these functions of the C library. Go itself does not, so other files are not affected.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* fails returns whether a call for fd must fail, and then sets errno. */
static int fails(int fd, int reads)
{
	static const char ledger[] = "/var/lib/caelum/ledger.db";
	char link[64], path[256] = "", text[32] = "";
	int error = 0, percent = 0, flag = open("/run/bad-disk", O_RDONLY | O_CLOEXEC);

	if (flag < 0)
		return 0;
	if (read(flag, text, sizeof(text) - 1) > 0)
		sscanf(text, "%d %d", &error, &percent);
	close(flag);
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	if (readlink(link, path, sizeof(path) - 1) < 0 || strncmp(path, ledger, sizeof(ledger) - 1) != 0 ||
	    (reads && error != EIO) || random() % 100 >= percent)
		return 0;
	errno = error;
	return 1;
}

ssize_t pread64(int fd, void *to, size_t n, off64_t at)
{
	return fails(fd, 1) ? -1 : syscall(SYS_pread64, fd, to, n, at);
}

ssize_t pwrite64(int fd, const void *from, size_t n, off64_t at)
{
	return fails(fd, 0) ? -1 : syscall(SYS_pwrite64, fd, from, n, at);
}

int ftruncate64(int fd, off64_t size)
{
	return fails(fd, 0) ? -1 : syscall(SYS_ftruncate, fd, size);
}

int fsync(int fd)
{
	return fails(fd, 0) ? -1 : syscall(SYS_fsync, fd);
}
