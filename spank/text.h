/*
 * Reads the agent's files, which consist of lines "key value". These functions never allocate memory, because they run
 * in a task between fork and exec.
 */
#ifndef CAELUM_TEXT_H
#define CAELUM_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TEXT_MAX 32768 /* in bytes; the size of the largest file that is read */

struct cursor {
	const char *at;
	const char *end;
	unsigned line; /* the number of lines read */
};

/* A character device. */
struct device {
	uint32_t major, minor;
};

/* Reads the next line without its newline. Returns false at the end, or if the last line has no newline. */
bool text_line(struct cursor *c, const char **line, size_t *length);

/* Returns the value of a line "key value", or NULL if the line has another key or an empty value. */
const char *text_value(const char *line, size_t length, const char *key, size_t *value_length);

/* Read the next line, which must have this key, and its value as text or as a number. Return false if they can't. */
bool text_next(struct cursor *c, const char *key, const char **value, size_t *length);
bool text_next_number(struct cursor *c, const char *key, uint32_t *number);

bool text_equals(const char *text, size_t length, const char *word);

/* Parses "major:minor". */
bool text_device(const char *value, size_t length, struct device *device);

/*
 * Reads a file, which must be a regular file, not a link, owned by root, not writable by group or others, and at most
 * TEXT_MAX bytes long. Returns the text without a terminating NUL, in a static buffer that the next call overwrites. On
 * an error returns NULL, with the reason in why and errno set.
 */
const char *text_read(const char *path, size_t *length, char *why, size_t size);

#endif
