#ifndef CAELUM_CONFIG_H
#define CAELUM_CONFIG_H

#include <stdbool.h>
#include <stddef.h>

/* The plugin's arguments in plugstack.conf. The strings belong to Slurm, and exist as long as the process. */
struct config {
	const char *run_dir;    /* the directory with the agent's socket and the lease files */
	const char *job_object; /* path of the Go object; NULL: libcaelum_spank.so beside the plugin */
	unsigned wait;          /* the number of seconds for which a prolog waits for the agent */
	bool memory_growth;     /* JAX and TensorFlow must not reserve GPU memory (growth.c) */
};

/*
 * Fills config from av. Missing arguments get their defaults. If an argument is unknown or has an invalid value,
 * returns -1 with the reason in why, and config contains the valid arguments. Otherwise returns 0.
 */
int config_parse(struct config *config, int ac, char **av, char *why, size_t size);

/* Reports whether the node has the run directory. On a node without this directory, the plugin does nothing. */
int config_managed(const struct config *config);

#endif
