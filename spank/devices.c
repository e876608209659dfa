#include "devices.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static bool parse_cgroup(struct devices *devices, struct cursor *c)
{
	const char *value;
	size_t length;

	if (!text_next(c, "cgroup", &value, &length) || value[0] != '/' || length >= sizeof(devices->cgroup) ||
	    memchr(value, '\0', length))
		return false;
	memcpy(devices->cgroup, value, length);
	devices->cgroup[length] = '\0';
	return true;
}

static bool parse_list(struct devices *devices, struct cursor *c)
{
	const char *line, *value;
	size_t length, n;

	while (text_line(c, &line, &length)) {
		if (text_equals(line, length, "end"))
			return c->at == c->end;
		value = text_value(line, length, "device", &n);
		if (!value || devices->n == DEVICES_MAX || !text_device(value, n, &devices->device[devices->n++]))
			return false;
	}
	return false;
}

int devices_parse(struct devices *devices, const char *text, size_t length, char *why, size_t size)
{
	struct cursor c = { .at = text, .end = text + length };
	uint32_t version = 0;

	devices->n = 0;
	if (!text_next_number(&c, "caelum-devices", &version) || version != 1 || !parse_cgroup(devices, &c) || !parse_list(devices, &c)) {
		snprintf(why, size, "not a complete device list of version 1 (near line %u)", c.line);
		return -1;
	}
	return 0;
}

int devices_read(struct devices *devices, const char *path, char *why, size_t size)
{
	size_t length;
	const char *text = text_read(path, &length, why, size);

	return text ? devices_parse(devices, text, length, why, size) : -1;
}
