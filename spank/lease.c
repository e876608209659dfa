#include "lease.h"
#include "number.h"
#include "text.h"

#include <stdio.h>
#include <string.h>

static bool parse_index(struct lease *lease, struct cursor *c)
{
	const char *value;
	size_t length;

	if (!text_next(c, "index", &value, &length))
		return false;
	lease->relative = text_equals(value, length, "relative");
	return lease->relative || text_equals(value, length, "absolute");
}

/*
 * Parses the optional line with the job's cgroup. Returns false if it is invalid, and leaves any other line to
 * parse_body.
 */
static bool parse_cgroup(struct lease *lease, struct cursor *c)
{
	struct cursor next = *c;
	const char *line, *value;
	size_t length, n;

	lease->cgroup = 0;
	if (!text_line(&next, &line, &length) || !(value = text_value(line, length, "cgroup", &n)))
		return true;
	*c = next;
	return number_parse64(value, n, &lease->cgroup) && lease->cgroup;
}

/*
 * Reports whether text can be the UUID of a single MIG device or GPU in CUDA_VISIBLE_DEVICES. With a comma, it would
 * name two devices.
 */
static bool valid_uuid(const char *text, size_t length)
{
	if (length < 5 || length >= LEASE_UUID_MAX || (memcmp(text, "MIG-", 4) != 0 && memcmp(text, "GPU-", 4) != 0) || text[4] == '/')
		return false;
	for (size_t i = 0; i < length; i++) {
		char ch = text[i];

		if (!((ch >= '0' && ch <= '9') || (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') || ch == '-' || ch == '/'))
			return false;
	}
	return true;
}

static bool parse_slot(struct lease *lease, const char *value, size_t length)
{
	struct lease_slot *slot;
	const char *space = memchr(value, ' ', length);
	const char *uuid;
	size_t uuid_length;

	if (!space || lease->slots == LEASE_SLOTS_MAX)
		return false;
	slot = &lease->slot[lease->slots];
	if (!number_parse(value, space - value, &slot->index) || lease_uuid(lease, slot->index))
		return false;
	uuid = space + 1;
	uuid_length = value + length - uuid;
	if (text_equals(uuid, uuid_length, "-"))
		uuid_length = 0;
	else if (!valid_uuid(uuid, uuid_length))
		return false;
	memcpy(slot->uuid, uuid, uuid_length);
	slot->uuid[uuid_length] = '\0';
	lease->slots++;
	return true;
}

static bool parse_device(struct lease *lease, const char *value, size_t length)
{
	return lease->devices < LEASE_DEVICES_MAX && text_device(value, length, &lease->device[lease->devices++]);
}

/* Parses an error. It must not contain control characters, because task_init writes it to the user's terminal. */
static bool parse_error(struct lease *lease, const char *value, size_t length)
{
	if (length >= LEASE_ERROR_MAX || lease->slots > 0 || lease->error[0])
		return false;
	for (size_t i = 0; i < length; i++) {
		if ((unsigned char)value[i] < 0x20 || value[i] == 0x7f)
			return false;
	}
	memcpy(lease->error, value, length);
	lease->error[length] = '\0';
	return true;
}

/* Parses the lines after "index" and "cgroup", up to "end": either the slots and then the devices, or an error. */
static bool parse_body(struct lease *lease, struct cursor *c)
{
	const char *line, *value;
	size_t length, n;

	while (text_line(c, &line, &length)) {
		if (text_equals(line, length, "end"))
			return c->at == c->end && (lease->slots > 0 || lease->error[0]);
		if ((value = text_value(line, length, "slot", &n)) && !lease->error[0] && !lease->devices) {
			if (!parse_slot(lease, value, n))
				return false;
		} else if ((value = text_value(line, length, "device", &n)) && lease->slots) {
			if (!parse_device(lease, value, n))
				return false;
		} else if ((value = text_value(line, length, "error", &n))) {
			if (!parse_error(lease, value, n))
				return false;
		} else {
			return false;
		}
	}
	return false;
}

int lease_parse(struct lease *lease, const char *text, size_t length, char *why, size_t size)
{
	struct cursor c = { .at = text, .end = text + length };
	uint32_t version = 0;

	lease->slots = 0;
	lease->devices = 0;
	lease->error[0] = '\0';
	if (!text_next_number(&c, "caelum-lease", &version) || version != 1 || !text_next_number(&c, "job", &lease->job) ||
	    !text_next_number(&c, "restart", &lease->restart) || !text_next_number(&c, "uid", &lease->uid) ||
	    !parse_index(lease, &c) || !parse_cgroup(lease, &c) || !parse_body(lease, &c)) {
		snprintf(why, size, "not a complete lease of version 1 (near line %u)", c.line);
		return -1;
	}
	return 0;
}

int lease_read(struct lease *lease, const char *path, char *why, size_t size)
{
	size_t length;
	const char *text = text_read(path, &length, why, size);

	return text ? lease_parse(lease, text, length, why, size) : -1;
}

const char *lease_uuid(const struct lease *lease, uint32_t slot)
{
	for (unsigned i = 0; i < lease->slots; i++) {
		if (lease->slot[i].index == slot)
			return lease->slot[i].uuid;
	}
	return NULL;
}

bool lease_has(const struct lease *lease, const struct device *device)
{
	for (unsigned i = 0; i < lease->devices; i++) {
		if (lease->device[i].major == device->major && lease->device[i].minor == device->minor)
			return true;
	}
	return false;
}
