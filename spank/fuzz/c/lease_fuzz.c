/*
 * Runs lease_parse on arbitrary bytes, devices_parse on input that begins like a device list, and bind_slots on input
 * that begins like a binding of tasks to GPUs. There is exactly one valid way to write each lease, so the program
 * formats each accepted lease and compares the result with the input. With -DREPLAY instead of libFuzzer, it processes each given file once.
 */
#include "../../bind.h"
#include "../../devices.h"
#include "../../lease.h"
#include "../../slots.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char again[2 * TEXT_MAX];

#define must(condition) \
	do { \
		if (!(condition)) { \
			fprintf(stderr, "lease_fuzz.c:%d: check failed: %s\n", __LINE__, #condition); \
			abort(); \
		} \
	} while (0)

/*
 * Parses a copy of the data in a buffer of exactly size bytes, so that the sanitizer detects reads past its end. All
 * bytes of the lease are first set to before, which must not affect the result.
 */
static int parse(struct lease *lease, const uint8_t *data, size_t size, uint8_t before)
{
	char why[80], *text = malloc(size ? size : 1);
	int rc;

	memcpy(text, data, size);
	memset(lease, before, sizeof(*lease));
	memset(why, 'x', sizeof(why));
	rc = lease_parse(lease, text, size, why, sizeof(why));
	free(text);
	must(rc == 0 || rc == -1);
	must(rc == 0 || memchr(why, '\0', sizeof(why)));
	return rc;
}

static size_t write_again(const struct lease *lease)
{
	size_t n = snprintf(again, sizeof(again), "caelum-lease 1\njob %u\nrestart %u\nuid %u\nindex %s\n", lease->job, lease->restart,
			    lease->uid, lease->relative ? "relative" : "absolute");

	if (lease->cgroup)
		n += snprintf(again + n, sizeof(again) - n, "cgroup %ju\n", (uintmax_t)lease->cgroup);
	for (unsigned i = 0; i < lease->slots; i++)
		n += snprintf(again + n, sizeof(again) - n, "slot %u %s\n", lease->slot[i].index,
			      lease->slot[i].uuid[0] ? lease->slot[i].uuid : "-");
	for (unsigned i = 0; i < lease->devices; i++)
		n += snprintf(again + n, sizeof(again) - n, "device %u:%u\n", lease->device[i].major, lease->device[i].minor);
	if (lease->error[0])
		n += snprintf(again + n, sizeof(again) - n, "error %s\n", lease->error);
	return n + snprintf(again + n, sizeof(again) - n, "end\n");
}

static void must_be_again(const uint8_t *data, size_t size, size_t n)
{
	must(n == size && memcmp(again, data, size) == 0);
}

/* Checks that each device in the list is longer than its prefix, and that the name of a GPU has no '/'. */
static void must_be_devices(const char *list)
{
	while (*list) {
		size_t length = strcspn(list, ",");

		must(length > 4 && (list[0] == 'M' || !memchr(list, '/', length)));
		list += length + (list[length] == ',');
	}
}

/*
 * Checks that CUDA_VISIBLE_DEVICES lists each slice exactly once, and nothing else. A buffer that is too small must
 * cause an error.
 */
static void check_translation(const struct lease *lease)
{
	static char out[LEASE_SLOTS_MAX * LEASE_UUID_MAX];
	static struct slots slots;
	uint32_t unknown = 0;
	unsigned slices = 0, commas = 0;
	size_t length;
	int n;

	for (unsigned i = 0; i < lease->slots; i++) {
		const char *uuid = lease_uuid(lease, lease->slot[i].index);

		must(uuid == lease->slot[i].uuid); /* no slot occurs twice */
		must(memchr(uuid, '\0', LEASE_UUID_MAX));
		must(!uuid[0] || ((strncmp(uuid, "MIG-", 4) == 0 || strncmp(uuid, "GPU-", 4) == 0) && !strpbrk(uuid, ",= \t\r\n")));
		slices += uuid[0] != '\0';
		slots.slot[i] = lease->slot[i].index;
	}
	slots.n = lease->slots;
	n = slots_translate(&slots, lease, out, sizeof(out), &unknown);
	must(n == (int)slices);
	for (const char *c = out; *c; c++)
		commas += *c == ',';
	must(commas == (slices ? slices - 1 : 0));
	must_be_devices(out);
	length = strlen(out);
	if (slices) {
		char *small = malloc(length);

		must(slots_translate(&slots, lease, small, length, &unknown) == -1);
		free(small);
	}
}

/* Checks devices_parse, which parses the device list. */
static void check_devices(const uint8_t *data, size_t size)
{
	static struct devices devices;
	char why[80], *text = malloc(size);
	size_t n;
	int rc;

	memcpy(text, data, size);
	memset(&devices, 0xa5, sizeof(devices));
	rc = devices_parse(&devices, text, size, why, sizeof(why));
	free(text);
	if (rc < 0) {
		must(rc == -1 && memchr(why, '\0', sizeof(why)));
		return;
	}
	must(devices.n <= DEVICES_MAX && memchr(devices.cgroup, '\0', sizeof(devices.cgroup)));
	n = snprintf(again, sizeof(again), "caelum-devices 1\ncgroup %s\n", devices.cgroup);
	for (unsigned i = 0; i < devices.n; i++)
		n += snprintf(again + n, sizeof(again) - n, "device %u:%u\n", devices.device[i].major, devices.device[i].minor);
	n += snprintf(again + n, sizeof(again) - n, "end\n");
	must_be_again(data, size, n);
}

/* Checks that bind_slots returns only slots of the step, at least one, and none twice. */
static void check_binding(const uint8_t *data, size_t size)
{
	static const struct slots step = { .n = 3, .slot = { 4, 7, 90 } };
	char *text = malloc(size + 1);

	memcpy(text, data, size);
	text[size] = '\0';
	for (unsigned task = 0; task < 5; task++) {
		static struct slots own;

		if (!bind_slots(&own, text, task, &step))
			continue;
		must(own.n >= 1 && own.n <= step.n && slots_within(&own, &step));
		for (unsigned i = 1; i < own.n; i++)
			must(own.slot[i - 1] < own.slot[i]);
	}
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct lease lease, other;

	if (size > TEXT_MAX)
		return 0;
	if (size > 7 && memcmp(data, "caelum-d", 8) == 0) {
		check_devices(data, size);
		return 0;
	}
	if (size > 3 && memcmp(data, "gpu:", 4) == 0) {
		check_binding(data, size);
		return 0;
	}
	if (parse(&lease, data, size, 0xa5) < 0) {
		must(parse(&other, data, size, 0) < 0);
		return 0;
	}
	must(lease.slots <= LEASE_SLOTS_MAX && memchr(lease.error, '\0', sizeof(lease.error)));
	must((lease.slots > 0) != (lease.error[0] != '\0'));
	for (const char *c = lease.error; *c; c++)
		must((unsigned char)*c >= 0x20 && *c != 0x7f);
	must_be_again(data, size, write_again(&lease));
	check_translation(&lease);
	must(parse(&other, data, size, 0) == 0);
	must(other.slots == lease.slots && strcmp(other.error, lease.error) == 0);
	must(parse(&other, data, size - 1, 0) < 0); /* truncated */
	return 0;
}

#ifdef REPLAY
int main(int argc, char **argv)
{
	static uint8_t data[TEXT_MAX + 1];

	for (int i = 1; i < argc; i++) {
		FILE *f = fopen(argv[i], "re");
		size_t size;

		if (!f) {
			perror(argv[i]);
			return 1;
		}
		size = fread(data, 1, sizeof(data), f);
		fclose(f);
		fprintf(stderr, "%s\n", argv[i]);
		LLVMFuzzerTestOneInput(data, size);
	}
	return argc > 1 ? 0 : 2;
}
#endif
