#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define RUN_DIR_DEFAULT "/run/caelum"
/*
 * The maximum length of run_dir in bytes. A Unix socket's path has at most 107 bytes, of which "/caelumd.sock" needs
 * 13.
 */
#define RUN_DIR_MAX 94
#define WAIT_DEFAULT 60 /* seconds */
#define WAIT_MAX 3600   /* seconds */

static const char *value_of(const char *word, const char *key)
{
	size_t n = strlen(key);

	return strncmp(word, key, n) == 0 && word[n] == '=' ? word + n + 1 : NULL;
}

static int parse_wait(const char *text, unsigned *wait)
{
	char *end = NULL;
	unsigned long n;

	if (text[0] < '0' || text[0] > '9')
		return -1;
	n = strtoul(text, &end, 10);
	if (*end != '\0' || n < 1 || n > WAIT_MAX)
		return -1;
	*wait = n;
	return 0;
}

static int parse_choice(const char *text, bool *choice)
{
	bool yes = strcmp(text, "yes") == 0;

	if (!yes && strcmp(text, "no") != 0)
		return -1;
	*choice = yes;
	return 0;
}

static int parse_argument(struct config *config, const char *word, char *why, size_t size)
{
	const char *value;

	if ((value = value_of(word, "run_dir"))) {
		if (value[0] != '/' || strlen(value) > RUN_DIR_MAX) {
			snprintf(why, size, "run_dir must be an absolute path of at most %d bytes, not '%.100s'", RUN_DIR_MAX, value);
			return -1;
		}
		config->run_dir = value;
	} else if ((value = value_of(word, "job_object"))) {
		if (value[0] != '/') {
			snprintf(why, size, "job_object must be an absolute path, not '%.100s'", value);
			return -1;
		}
		config->job_object = value;
	} else if ((value = value_of(word, "wait"))) {
		if (parse_wait(value, &config->wait) < 0) {
			snprintf(why, size, "wait must be a number of seconds from 1 to %d, not '%.100s'", WAIT_MAX, value);
			return -1;
		}
	} else if ((value = value_of(word, "memory_growth"))) {
		if (parse_choice(value, &config->memory_growth) < 0) {
			snprintf(why, size, "memory_growth must be yes or no, not '%.100s'", value);
			return -1;
		}
	} else if ((value = value_of(word, "nvidia_visible"))) {
		if (parse_choice(value, &config->nvidia_visible) < 0) {
			snprintf(why, size, "nvidia_visible must be yes or no, not '%.100s'", value);
			return -1;
		}
	} else {
		snprintf(why, size, "unknown argument '%.100s' (known: run_dir=, job_object=, wait=, memory_growth=, nvidia_visible=)",
			 word);
		return -1;
	}
	return 0;
}

int config_parse(struct config *config, int ac, char **av, char *why, size_t size)
{
	int rv = 0;
	char ignored[8];

	*config = (struct config){ .run_dir = RUN_DIR_DEFAULT, .wait = WAIT_DEFAULT, .memory_growth = true };
	for (int i = 0; i < ac; i++) {
		/*
		 * Only the first error is reported, but parsing continues, because a later argument may set run_dir.
		 */
		if (parse_argument(config, av[i], rv ? ignored : why, rv ? sizeof(ignored) : size) < 0)
			rv = -1;
	}
	return rv;
}

int config_managed(const struct config *config)
{
	struct stat st;

	return stat(config->run_dir, &st) == 0 && S_ISDIR(st.st_mode);
}
