/*
 * unified.so is preloaded into slurmd and slurmstepd on a node with cgroup v2. Slurm's cgroup v2 plugin does not work
 * on a machine that also has v1 hierarchies ("Hybrid mode is not supported", src/plugins/cgroup/v2/cgroup_v2.c),
 * because it accepts only the v2 line in /proc/PID/cgroup. unified.so hides the v1 lines from it and leaves the v2 line
 * unchanged.
 *
 * slurmstepd 22.05 moves itself to the root cgroup at its end. Only the machine's root cgroup may contain processes
 * although controllers are enabled for its children, and the cluster's is not the machine's. unified.so moves the process
 * to the cgroup of PID 1 instead.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define ROOT "/sys/fs/cgroup"

typedef int open_function(const char *, int, ...);

/* is_cgroup_file returns whether path is /proc/self/cgroup or /proc/PID/cgroup. */
static int is_cgroup_file(const char *path)
{
	const char *rest;

	if (strncmp(path, "/proc/", 6) != 0)
		return 0;
	rest = strchr(path + 6, '/');
	return rest != NULL && strcmp(rest, "/cgroup") == 0;
}

/*
 * only_v2 closes a descriptor of /proc/PID/cgroup, and returns one for a file with only the v2 line, or -1.
 */
static int only_v2(int fd)
{
	int shown = memfd_create("cgroup", MFD_CLOEXEC);
	FILE *file = fdopen(fd, "r");
	char *line = NULL;
	size_t size = 0;
	ssize_t n;

	while (shown >= 0 && file != NULL && (n = getline(&line, &size, file)) > 0) {
		if (strncmp(line, "0::", 3) == 0 && write(shown, line, (size_t)n) != n)
			abort();
	}
	free(line);
	if (file != NULL)
		fclose(file);
	if (shown >= 0 && lseek(shown, 0, SEEK_SET) != 0)
		abort();
	return shown;
}

static int open_with(const char *name, const char *path, int flags, mode_t mode)
{
	open_function *next = (open_function *)dlsym(RTLD_NEXT, name);
	int fd;

	if (strcmp(path, ROOT "/cgroup.procs") == 0 && (flags & O_ACCMODE) != O_RDONLY)
		path = ROOT "/init.scope/cgroup.procs";
	fd = next(path, flags, mode);
	return fd >= 0 && is_cgroup_file(path) ? only_v2(fd) : fd;
}

/* mode_of returns the third argument of open(2), which exists only if open may create a file. */
#define mode_of(flags, mode) \
	do { \
		va_list rest; \
		va_start(rest, flags); \
		if ((flags) & (O_CREAT | O_TMPFILE)) \
			(mode) = va_arg(rest, mode_t); \
		va_end(rest); \
	} while (0)

int open(const char *path, int flags, ...)
{
	mode_t mode = 0;

	mode_of(flags, mode);
	return open_with("open", path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
	mode_t mode = 0;

	mode_of(flags, mode);
	return open_with("open64", path, flags, mode);
}
