#include "slots.h"
#include "number.h"

#include <stdio.h>
#include <string.h>

bool slots_parse(struct slots *slots, const char *text)
{
	slots->n = 0;
	for (;;) {
		size_t length = strcspn(text, ",");

		if (slots->n == LEASE_SLOTS_MAX || !number_parse(text, length, &slots->slot[slots->n]))
			return false;
		slots->n++;
		if (text[length] == '\0')
			return true;
		text += length + 1;
	}
}

bool slots_equal(const struct slots *a, const struct slots *b)
{
	return a->n == b->n && memcmp(a->slot, b->slot, a->n * sizeof(a->slot[0])) == 0;
}

static bool has(const struct slots *slots, uint32_t slot)
{
	for (unsigned i = 0; i < slots->n; i++) {
		if (slots->slot[i] == slot)
			return true;
	}
	return false;
}

bool slots_within(const struct slots *part, const struct slots *whole)
{
	for (unsigned i = 0; i < part->n; i++) {
		if (!has(whole, part->slot[i]))
			return false;
	}
	return true;
}

/*
 * Returns the length of the part of a UUID that CUDA and the container tools know. A fraction is named
 * GPU-<uuid>/<serial>/<size>, and its device is the GPU. Old drivers' MIG-GPU-<uuid>/<gi>/<ci> is a device's whole name.
 */
static int device_length(const char *uuid)
{
	return strncmp(uuid, "GPU-", 4) == 0 ? strcspn(uuid, "/") : strlen(uuid);
}

int slots_translate(const struct slots *slots, const struct lease *lease, char *out, size_t size, uint32_t *unknown)
{
	size_t length = 0;
	int slices = 0;

	out[0] = '\0';
	for (unsigned i = 0; i < slots->n; i++) {
		const char *uuid = lease_uuid(lease, slots->slot[i]);
		int n;

		if (!uuid) {
			*unknown = slots->slot[i];
			return -1;
		}
		if (uuid[0] == '\0')
			continue;
		n = snprintf(out + length, size - length, "%s%.*s", slices ? "," : "", device_length(uuid), uuid);
		if (n < 0 || (size_t)n >= size - length) {
			*unknown = slots->slot[i];
			return -1;
		}
		length += n;
		slices++;
	}
	return slices;
}
