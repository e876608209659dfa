/*
 * Tests the parsers in devices.c and cgroup.c under the sanitizers.
 *
 *   cgroup_check devices FILE      parses a device list and prints it
 *   cgroup_check step FILE         parses a copy of /proc/self/cgroup and prints the step's cgroup
 *   cgroup_check job MOUNTPOINT INODE   checks the inode number of this process's job; prints "ok" or the reason
 */
#include "../../cgroup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void show_devices(const char *text, size_t length)
{
	static struct devices devices;
	char why[256];

	if (devices_parse(&devices, text, length, why, sizeof(why)) < 0) {
		printf("refused: %s\n", why);
		return;
	}
	printf("cgroup %s", devices.cgroup);
	for (unsigned i = 0; i < devices.n; i++)
		printf(" %u:%u", devices.device[i].major, devices.device[i].minor);
	printf("\n");
}

static void show_step(const char *text, size_t length)
{
	char path[CGROUP_PATH_MAX];
	int version = cgroup_of_step(text, length, "/sys/fs/cgroup", path, sizeof(path));

	printf(version ? "v%d %s\n" : "none\n", version, path);
}

int main(int argc, char **argv)
{
	static char text[1 << 20];
	size_t length;
	char *exact;
	FILE *f;

	if (argc == 4 && strcmp(argv[1], "job") == 0) {
		int rc = cgroup_check_job(argv[2], strtoull(argv[3], NULL, 10), text, sizeof(text));

		printf("%s\n", rc == 0 ? "ok" : text);
		return 0;
	}
	if (argc != 3 || !(f = fopen(argv[2], "re")))
		return 2;
	length = fread(text, 1, sizeof(text), f);
	fclose(f);
	exact = malloc(length ? length : 1); /* so that the sanitizer detects reads past the end */
	memcpy(exact, text, length);
	if (strcmp(argv[1], "devices") == 0)
		show_devices(exact, length);
	else
		show_step(exact, length);
	free(exact);
	return 0;
}
