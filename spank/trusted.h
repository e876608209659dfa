#ifndef CAELUM_TRUSTED_H
#define CAELUM_TRUSTED_H

#include <stddef.h>

/*
 * Resolves the symbolic links in path, and checks that only root can change the file. The file and all directories in
 * the path must belong to root, and must not be writable by group or others. A directory with the sticky bit, such as
 * /tmp, may be writable if it does not directly contain the file. internal/trust implements the same rules in Go.
 *
 * Returns the resolved path, which the caller must use and free, or NULL with the reason in why. If the path cannot be
 * resolved, for example because the file does not exist, returns it unchanged. The caller then gets the error when it
 * opens the file.
 */
char *trusted_path(const char *path, char *why, size_t size);

#endif
