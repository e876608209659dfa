/*
 * Reads the agent's files, which consist of "key value" lines. These functions never allocate memory, because tasks
 * call them between fork and exec.
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
	unsigned line; /* the number of lines read */
};

/* A character device. */
struct device {
	uint32_t major, minor;
};

/*
 * Reads the next line without its newline. Returns false at the end of the text, and for a last line without a newline.
 */
bool text_line(struct cursor *c, const char **line, size_t *length);

/* Returns the value in a "key value" line, or NULL if the key is different or the value is empty. */
const char *text_value(const char *line, size_t length, const char *key, size_t *value_length);

/*
 * text_next and text_next_number read the next line, which must have the given key, and return its value as text or as
 * a number. Both return false on error.
 */
bool text_next(struct cursor *c, const char *key, const char **value, size_t *length);
bool text_next_number(struct cursor *c, const char *key, uint32_t *number);

bool text_equals(const char *text, size_t length, const char *word);

/* Parses "major:minor". */
bool text_device(const char *value, size_t length, struct device *device);

/*
 * Reads a regular file that belongs to root, is not writable by group or others, and has at most TEXT_MAX bytes. Does
 * not follow a symbolic link. Returns the contents without a terminating NUL, in a static buffer that the next call
 * overwrites. On error, returns NULL with errno set and the reason in why.
 */
const char *text_read(const char *path, size_t *length, char *why, size_t size);

#endif
