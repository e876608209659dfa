/*
 * Finds the step's cgroup. Before slurmstepd forks the tasks, it moves itself into the step's cgroup or one below it
 * (22.05), and no task ever leaves the step's cgroup. In v1, the path of a task's cgroup is <job>/<step> in the devices
 * hierarchy. In v2, the path is <job>/<step>/slurm, and later <job>/<step>/user/task_<i>.
 */
#include "cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Reports whether a list of v1 controllers, such as "cpu,devices", contains "devices". */
static bool has_devices(const char *list, size_t length)
{
	const char *end = list + length;

	while (list < end) {
		const char *comma = memchr(list, ',', end - list);
		size_t n = (comma ? comma : end) - list;

		if (text_equals(list, n, "devices"))
			return true;
		list += n + 1;
	}
	return false;
}

/*
 * Returns the length of a cgroup's path up to the end of its last "step_<X>" component, or 0 if it has none.
 */
static size_t step_length(const char *path, size_t length)
{
	static const char step[] = "/step_";
	size_t found = 0;

	for (size_t i = 0; i + sizeof(step) - 1 < length; i++) {
		if (memcmp(path + i, step, sizeof(step) - 1) == 0) {
			const char *slash = memchr(path + i + 1, '/', length - i - 1);

			found = slash ? (size_t)(slash - path) : length;
		}
	}
	return found;
}

int cgroup_of_step(const char *text, size_t length, const char *mountpoint, char *path, size_t size)
{
	struct cursor c = { .at = text, .end = text + length };
	const char *line;
	size_t n;
	int rv = 0;

	/*
	 * A line has the form hierarchy:controllers:path. In version 2, the hierarchy is 0, and the list of controllers
	 * is empty.
	 */
	while (rv != 1 && text_line(&c, &line, &n)) {
		const char *list = memchr(line, ':', n);
		const char *at = list ? memchr(list + 1, ':', line + n - list - 1) : NULL;
		bool devices = at && has_devices(list + 1, at - list - 1);
		size_t step = at ? step_length(at + 1, line + n - at - 1) : 0;
		int m;

		if (!step || !(devices || text_equals(line, at - line, "0:")))
			continue;
		m = snprintf(path, size, "%s%s%.*s", mountpoint, devices ? "/devices" : "", (int)step, at + 1);
		if (m > 0 && (size_t)m < size)
			rv = devices ? 1 : 2;
	}
	return rv;
}

/*
 * Denies access to the devices in a v1 cgroup, one write per device, because the kernel reads one rule per write.
 */
static int refuse_v1(const char *cgroup, const struct devices *devices, const struct lease *own, char *why, size_t size)
{
	char path[CGROUP_PATH_MAX + 16];
	int fd, rv = -1;

	snprintf(path, sizeof(path), "%s/devices.deny", cgroup);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		goto done;
	for (unsigned i = 0; i < devices->n; i++) {
		const struct device *d = &devices->device[i];
		char rule[48];
		int n = snprintf(rule, sizeof(rule), "c %u:%u rwm", d->major, d->minor);

		if (!lease_has(own, d) && write(fd, rule, n) != n)
			goto done;
	}
	rv = 0;

done:
	if (rv < 0)
		snprintf(why, size, "couldn't write %s: %s", path, strerror(errno));
	if (fd >= 0)
		close(fd);
	return rv;
}

/* Calls cgroup_of_step for the current process. On error, returns -1 with the reason in why. */
static int own_step(const char *mountpoint, char path[CGROUP_PATH_MAX], char *why, size_t size)
{
	static char text[8192];
	ssize_t length = -1;
	int fd = open("/proc/self/cgroup", O_RDONLY | O_CLOEXEC);

	if (fd >= 0) {
		length = read(fd, text, sizeof(text));
		close(fd);
	}
	if (length < 0) {
		snprintf(why, size, "couldn't read /proc/self/cgroup: %s", strerror(errno));
		return -1;
	}
	return cgroup_of_step(text, length, mountpoint, path, CGROUP_PATH_MAX);
}

int cgroup_refuse(const struct devices *devices, const struct lease *own, char *why, size_t size)
{
	char path[CGROUP_PATH_MAX];
	int rv = -1;

	switch (own_step(devices->cgroup, path, why, size)) {
	case -1:
		break;
	case 1:
		rv = refuse_v1(path, devices, own, why, size);
		break;
	case 2:
		rv = bpf_refuse(path, devices, own, why, size);
		break;
	default:
		snprintf(why, size, "Slurm has created no cgroup for this step");
		rv = CGROUP_NONE;
	}
	return rv;
}

bool cgroup_parent(char *path)
{
	char *slash = strrchr(path, '/');

	if (!slash || slash == path)
		return false;
	*slash = '\0';
	return true;
}

int cgroup_check_job(const char *mountpoint, uint64_t inode, char *why, size_t size)
{
	char path[CGROUP_PATH_MAX];
	struct stat job;
	int version = own_step(mountpoint, path, why, size);
	int rv = -1;

	if (version < 0)
		goto done;
	if (version != 2)
		snprintf(why, size, "Slurm has created no cgroup of version 2 for this step");
	else if (!cgroup_parent(path) || stat(path, &job) < 0)
		snprintf(why, size, "couldn't read %s: %s", path, strerror(errno));
	else if (job.st_ino != inode)
		snprintf(why, size, "%s has the inode number %ju, not %ju", path, (uintmax_t)job.st_ino, (uintmax_t)inode);
	else
		rv = 0;

done:
	return rv;
}
