/*
 * Reading the agent's files, which are lines of "key value". Nothing here allocates: a task between fork and exec should not.
 */
#ifndef CAELUM_TEXT_H
#define CAELUM_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TEXT_MAX 32768 /* bytes of a file */

struct cursor {
	const char *at;
	const char *end;
	unsigned line; /* how many have been read */
};

/* A character device. */
struct device {
	uint32_t major, minor;
};

/* The next line without its newline; false at the end or for a last line that was cut off. */
bool text_line(struct cursor *c, const char **line, size_t *length);

/* The value of a "key value" line, or NULL. */
const char *text_value(const char *line, size_t length, const char *key, size_t *value_length);

/* The value of the next line, which must have this key. */
bool text_next(struct cursor *c, const char *key, const char **value, size_t *length);
bool text_next_number(struct cursor *c, const char *key, uint32_t *number);

bool text_equals(const char *text, size_t length, const char *word);

/* "major:minor" */
bool text_device(const char *value, size_t length, struct device *device);

/*
 * Reads a whole file: a regular one, no link, owned by root, not writable by others, at most TEXT_MAX bytes. Its text,
 * in a static buffer that the next call overwrites and with no terminating NUL; or NULL, with errno and the reason in why.
 */
const char *text_read(const char *path, size_t *length, char *why, size_t size);

#endif
