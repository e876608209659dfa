#include "trusted.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/*
 * Checks one component of path. *shared is true if the directory above it is sticky and writable by other users. check
 * then sets *shared for the next component.
 */
static bool check(const char *path, const char *component, bool last, bool *shared, char *why, size_t size)
{
	bool under = *shared, open;
	struct stat st;

	*shared = false;
	if (lstat(component, &st) < 0 || S_ISLNK(st.st_mode)) {
		snprintf(why, size, "couldn't use %s: another process is changing %s; try again", path, component);
		return false;
	}
	if (st.st_uid != 0) {
		snprintf(why, size, "couldn't use %s: %s belongs to uid %u, not to root; chown root %s", path, component, (unsigned)st.st_uid, component);
		return false;
	}
	if (under && !S_ISDIR(st.st_mode)) {
		snprintf(why, size,
			 "couldn't use %s: the file is in a directory where every user may create files; "
			 "move the file to a directory that belongs to root",
			 path);
		return false;
	}
	open = st.st_mode & (S_IWGRP | S_IWOTH);
	if (open && S_ISDIR(st.st_mode) && (st.st_mode & S_ISVTX) && !last) {
		*shared = true;
		return true;
	}
	if (open)
		snprintf(why, size, "couldn't use %s: %s is writable by group or others; chmod go-w %s", path, component, component);
	return !open;
}

char *trusted_path(const char *path, char *why, size_t size)
{
	char *resolved = realpath(path, NULL);
	bool shared = false, ok;

	if (!resolved)
		return strdup(path);
	ok = check(path, "/", false, &shared, why, size);
	for (char *end = resolved; ok && *end;) {
		char kept;

		end += 1 + strcspn(end + 1, "/");
		kept = *end;
		*end = '\0';
		ok = check(path, resolved, kept == '\0', &shared, why, size);
		*end = kept;
	}
	if (!ok) {
		free(resolved);
		resolved = NULL;
	}
	return resolved;
}
