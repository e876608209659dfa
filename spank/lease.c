#include "lease.h"
#include "number.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct cursor {
	const char *at;
	const char *end;
	unsigned line;
};

/* The next line without its newline; false at the end or for a last line that was cut off. */
static bool next_line(struct cursor *c, const char **line, size_t *length)
{
	const char *newline = c->at < c->end ? memchr(c->at, '\n', c->end - c->at) : NULL;

	if (!newline)
		return false;
	*line = c->at;
	*length = newline - c->at;
	c->at = newline + 1;
	c->line++;
	return true;
}

/* The value of a "key value" line, or NULL. */
static const char *value_of(const char *line, size_t length, const char *key, size_t *value_length)
{
	size_t n = strlen(key);

	if (length < n + 2 || memcmp(line, key, n) != 0 || line[n] != ' ')
		return NULL;
	*value_length = length - n - 1;
	return line + n + 1;
}

static bool next_value(struct cursor *c, const char *key, const char **value, size_t *length)
{
	const char *line;

	if (!next_line(c, &line, length))
		return false;
	return (*value = value_of(line, *length, key, length)) != NULL;
}

static bool next_number(struct cursor *c, const char *key, uint32_t *number)
{
	const char *value;
	size_t length;

	return next_value(c, key, &value, &length) && number_parse(value, length, number);
}

static bool equals(const char *text, size_t length, const char *word)
{
	return length == strlen(word) && memcmp(text, word, length) == 0;
}

static bool parse_index(struct lease *lease, struct cursor *c)
{
	const char *value;
	size_t length;

	if (!next_value(c, "index", &value, &length))
		return false;
	lease->relative = equals(value, length, "relative");
	return lease->relative || equals(value, length, "absolute");
}

/* What may stand in CUDA_VISIBLE_DEVICES as one device: a comma or an equals sign would make it something else. */
static bool valid_uuid(const char *text, size_t length)
{
	if (length < 5 || length >= LEASE_UUID_MAX || memcmp(text, "MIG-", 4) != 0)
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
	if (equals(uuid, uuid_length, "-"))
		uuid_length = 0;
	else if (!valid_uuid(uuid, uuid_length))
		return false;
	memcpy(slot->uuid, uuid, uuid_length);
	slot->uuid[uuid_length] = '\0';
	lease->slots++;
	return true;
}

/* The text goes to a user's terminal: no control characters. */
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

/* The lines between "index" and "end". */
static bool parse_body(struct lease *lease, struct cursor *c)
{
	const char *line, *value;
	size_t length, n;

	while (next_line(c, &line, &length)) {
		if (equals(line, length, "end"))
			return c->at == c->end && (lease->slots > 0 || lease->error[0]);
		if ((value = value_of(line, length, "slot", &n)) && !lease->error[0]) {
			if (!parse_slot(lease, value, n))
				return false;
		} else if ((value = value_of(line, length, "error", &n))) {
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
	lease->error[0] = '\0';
	if (!next_number(&c, "caelum-lease", &version) || version != 1 || !next_number(&c, "job", &lease->job) ||
	    !next_number(&c, "restart", &lease->restart) || !next_number(&c, "uid", &lease->uid) ||
	    !parse_index(lease, &c) || !parse_body(lease, &c)) {
		snprintf(why, size, "not a whole lease of version 1 (near line %u)", c.line);
		return -1;
	}
	return 0;
}

static int check_file(int fd, char *why, size_t size)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		snprintf(why, size, "%s", strerror(errno));
	else if (!S_ISREG(st.st_mode))
		snprintf(why, size, "not a regular file");
	else if (st.st_uid != 0 || (st.st_mode & (S_IWGRP | S_IWOTH)))
		snprintf(why, size, "not owned by root, or writable by others");
	else if (st.st_size > LEASE_FILE_MAX)
		snprintf(why, size, "longer than %d bytes", LEASE_FILE_MAX);
	else
		return 0;
	return -1;
}

int lease_read(struct lease *lease, const char *path, char *why, size_t size)
{
	static char text[LEASE_FILE_MAX + 1];
	size_t length = 0;
	ssize_t n;
	int rv = -1;
	/* O_NONBLOCK: a fifo in the file's place must not hang the task. */
	int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

	if (fd < 0) {
		snprintf(why, size, "%s", strerror(errno));
		goto done;
	}
	if (check_file(fd, why, size) < 0)
		goto done;
	do {
		n = read(fd, text + length, sizeof(text) - length);
		if (n > 0)
			length += n;
	} while (length < sizeof(text) && (n > 0 || (n < 0 && errno == EINTR)));
	if (n < 0) {
		snprintf(why, size, "%s", strerror(errno));
		goto done;
	}
	if (length > LEASE_FILE_MAX) {
		snprintf(why, size, "longer than %d bytes", LEASE_FILE_MAX);
		goto done;
	}
	rv = lease_parse(lease, text, length, why, size);

done:
	if (fd >= 0)
		close(fd);
	return rv;
}

const char *lease_uuid(const struct lease *lease, uint32_t slot)
{
	for (unsigned i = 0; i < lease->slots; i++) {
		if (lease->slot[i].index == slot)
			return lease->slot[i].uuid;
	}
	return NULL;
}
