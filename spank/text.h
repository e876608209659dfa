/*
 * Reads the agent's files, which consist of lines "key value". These functions never allocate memory, because they
 * run in a task between fork and exec.
 */
#ifndef CAELUM_TEXT_H
#define CAELUM_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TEXT_MAX 32768 /* maximum size of a file in bytes */

struct cursor {
	const char *at;
	const char *end;
	unsigned line; /* the number of lines that have been read */
};

/* A character device. */
struct device {
	uint32_t major, minor;
};

/*
 * Reads the next line without its newline. Returns false at the end, or if the last line does not end with a newline.
 */
bool text_line(struct cursor *c, const char **line, size_t *length);

/* Returns the value of a line "key value", or NULL if the line has another key or an empty value. */
const char *text_value(const char *line, size_t length, const char *key, size_t *value_length);

/*
 * These functions read the next line, which must have this key, and its value as text or as a number. They return
 * false on an error.
 */
bool text_next(struct cursor *c, const char *key, const char **value, size_t *length);
bool text_next_number(struct cursor *c, const char *key, uint32_t *number);

bool text_equals(const char *text, size_t length, const char *word);

/* Parses "major:minor". */
bool text_device(const char *value, size_t length, struct device *device);

/*
 * Reads a file. It must be a regular file and not a link, must belong to root, must not be writable by the group or
 * others, and must have at most TEXT_MAX bytes. Returns the text without a NUL at its end, in a static buffer that
 * the next call overwrites. On an error, returns NULL with errno and with the reason in why.
 */
const char *text_read(const char *path, size_t *length, char *why, size_t size);

#endif
