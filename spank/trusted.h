#ifndef CAELUM_TRUSTED_H
#define CAELUM_TRUSTED_H

#include <stddef.h>

/*
 * Resolves the symbolic links of path, and checks that only root can change the file: the file and every directory
 * above it must be owned by root and not be writable by group or others. A directory with the sticky bit, such as /tmp,
 * may be writable if it is not the directory of the file itself. The rules are those of internal/trust.
 *
 * Returns the resolved path, which the caller must use and free, or NULL with the reason in why. A path that cannot be
 * resolved, for example because there is no such file, is returned unchanged: the caller gets the error when it opens
 * the file.
 */
char *trusted_path(const char *path, char *why, size_t size);

#endif
