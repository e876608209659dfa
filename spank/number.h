#ifndef CAELUM_NUMBER_H
#define CAELUM_NUMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Parses a decimal number of at most 64 bits, without a sign or leading zeros. strtoul would also accept " +1" and
 * "-1".
 */
static inline bool number_parse64(const char *text, size_t length, uint64_t *number)
{
	uint64_t n = 0;

	if (length == 0 || (length > 1 && text[0] == '0'))
		return false;
	for (size_t i = 0; i < length; i++) {
		if (text[i] < '0' || text[i] > '9' || __builtin_mul_overflow(n, 10, &n) ||
		    __builtin_add_overflow(n, text[i] - '0', &n))
			return false;
	}
	*number = n;
	return true;
}

/* Does the same for a number of at most 32 bits. */
static inline bool number_parse(const char *text, size_t length, uint32_t *number)
{
	uint64_t n;

	if (!number_parse64(text, length, &n) || n > UINT32_MAX)
		return false;
	*number = n;
	return true;
}

#endif
