#ifndef CAELUM_CONFIG_H
#define CAELUM_CONFIG_H

#include <stddef.h>

/*
 * The words behind the plugin's name in plugstack.conf. The strings are Slurm's and live as long as the process.
 */
struct config {
	const char *run_dir;    /* the agent's socket and the lease files */
	const char *job_object; /* the Go object; NULL: beside the plugin */
	unsigned wait;          /* seconds that a prolog waits for the agent */
};

/*
 * Fills config, with defaults for what av does not name. 0, or -1 with the reason in why for a word that is unknown or
 * has no valid value; config then holds what was understood.
 */
int config_parse(struct config *config, int ac, char **av, char *why, size_t size);

/* Whether the node has the run directory: without it the node is not managed and the plugin does nothing. */
int config_managed(const struct config *config);

#endif
