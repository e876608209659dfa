#ifndef CAELUM_NUMBER_H
#define CAELUM_NUMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Parses a decimal number of at most 32 bits, without a sign or leading zeros. strtoul would also accept " +1" and
 * "-1".
 */
static inline bool number_parse(const char *text, size_t length, uint32_t *number)
{
	uint64_t n = 0;

	if (length == 0 || length > 10 || (length > 1 && text[0] == '0'))
		return false;
	for (size_t i = 0; i < length; i++) {
		if (text[i] < '0' || text[i] > '9')
			return false;
		n = n * 10 + (text[i] - '0');
	}
	if (n > UINT32_MAX)
		return false;
	*number = n;
	return true;
}

#endif
