#include "text.h"
#include "number.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool text_line(struct cursor *c, const char **line, size_t *length)
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

const char *text_value(const char *line, size_t length, const char *key, size_t *value_length)
{
	size_t n = strlen(key);

	if (length < n + 2 || memcmp(line, key, n) != 0 || line[n] != ' ')
		return NULL;
	*value_length = length - n - 1;
	return line + n + 1;
}

bool text_next(struct cursor *c, const char *key, const char **value, size_t *length)
{
	const char *line;

	if (!text_line(c, &line, length))
		return false;
	return (*value = text_value(line, *length, key, length)) != NULL;
}

bool text_next_number(struct cursor *c, const char *key, uint32_t *number)
{
	const char *value;
	size_t length;

	return text_next(c, key, &value, &length) && number_parse(value, length, number);
}

bool text_equals(const char *text, size_t length, const char *word)
{
	return length == strlen(word) && memcmp(text, word, length) == 0;
}

bool text_device(const char *value, size_t length, struct device *device)
{
	const char *colon = memchr(value, ':', length);

	return colon && number_parse(value, colon - value, &device->major) &&
	       number_parse(colon + 1, value + length - colon - 1, &device->minor);
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
	else if (st.st_size > TEXT_MAX)
		snprintf(why, size, "longer than %d bytes", TEXT_MAX);
	else
		return 0;
	return -1;
}

const char *text_read(const char *path, size_t *length, char *why, size_t size)
{
	static char text[TEXT_MAX + 1];
	const char *rv = NULL;
	ssize_t n;
	/* O_NONBLOCK prevents a fifo at this path from blocking the task. */
	int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	int error = errno;

	*length = 0;
	if (fd < 0) {
		snprintf(why, size, "%s", strerror(errno));
		goto done;
	}
	error = EINVAL;
	if (check_file(fd, why, size) < 0)
		goto done;
	do {
		n = read(fd, text + *length, sizeof(text) - *length);
		if (n > 0)
			*length += n;
	} while (*length < sizeof(text) && (n > 0 || (n < 0 && errno == EINTR)));
	if (n < 0) {
		snprintf(why, size, "%s", strerror(errno));
		goto done;
	}
	if (*length > TEXT_MAX) {
		snprintf(why, size, "longer than %d bytes", TEXT_MAX);
		goto done;
	}
	rv = text;

done:
	if (fd >= 0)
		close(fd);
	errno = error;
	return rv;
}
