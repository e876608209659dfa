/*
 * Tests the lease parser under the sanitizers.
 *
 *   lease_check parse FILE     parses a lease and prints it
 *   lease_check read FILE      does the same with lease_read
 *   lease_check mutate FILE    parses every prefix of the lease, and the lease with each byte replaced; prints how many of them are accepted
 */
#include "../../lease.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct lease lease;
static char why[256];

/* Parses a copy in a buffer of exactly length bytes, so that the sanitizer detects reads past its end. */
static bool parse(const char *text, size_t length)
{
	char *copy = malloc(length ? length : 1);
	int rc;

	memcpy(copy, text, length);
	rc = lease_parse(&lease, copy, length, why, sizeof(why));
	free(copy);
	return rc == 0;
}

static void print(bool ok)
{
	if (!ok) {
		printf("refused: %s\n", why);
		return;
	}
	printf("job %u restart %u uid %u %s", lease.job, lease.restart, lease.uid, lease.relative ? "relative" : "absolute");
	if (lease.cgroup)
		printf(" cgroup %ju", (uintmax_t)lease.cgroup);
	for (unsigned i = 0; i < lease.slots; i++)
		printf(" %u:%s", lease.slot[i].index, lease.slot[i].uuid[0] ? lease.slot[i].uuid : "-");
	for (unsigned i = 0; i < lease.devices; i++)
		printf(" %u/%u", lease.device[i].major, lease.device[i].minor);
	printf(lease.error[0] ? " error '%s'\n" : "\n", lease.error);
}

static void mutate(char *text, size_t length)
{
	static const char bytes[] = { 0, '\n', ' ', '-', '0', '9', ',', 'x', 0x7f, (char)0xff };
	unsigned prefixes = 0, changed = 0;

	for (size_t n = 0; n < length; n++)
		prefixes += parse(text, n);
	for (size_t i = 0; i < length; i++) {
		char was = text[i];

		for (size_t b = 0; b < sizeof(bytes); b++) {
			text[i] = bytes[b];
			changed += parse(text, length);
		}
		text[i] = was;
	}
	printf("accepted prefixes: %u, complete: %d, accepted mutations: %s\n", prefixes, parse(text, length),
	       changed ? "some" : "none");
}

int main(int argc, char **argv)
{
	static char text[1 << 20];
	size_t length;
	FILE *f;

	if (argc != 3)
		return 2;
	if (strcmp(argv[1], "read") == 0) {
		print(lease_read(&lease, argv[2], why, sizeof(why)) == 0);
		return 0;
	}
	if (!(f = fopen(argv[2], "re")))
		return 2;
	length = fread(text, 1, sizeof(text), f);
	fclose(f);
	if (strcmp(argv[1], "mutate") == 0)
		mutate(text, length);
	else
		print(parse(text, length));
	return 0;
}
