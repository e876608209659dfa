#ifndef CAELUM_TRUSTED_H
#define CAELUM_TRUSTED_H

#include <stddef.h>

/*
 * Resolves the symbolic links of path, and checks that only root can change what it leads to: that and every directory above it are root's and not
 * writable by group or others. A directory with the sticky bit, such as /tmp, may be writable above a directory. The rules are those of
 * internal/trust. Returns the resolved path, which the caller must use and free, or NULL with the reason in why. A path that cannot be resolved, because there is no
 * such file, is returned as it is: opening it says why.
 */
char *trusted_path(const char *path, char *why, size_t size);

#endif
