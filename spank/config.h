#ifndef CAELUM_CONFIG_H
#define CAELUM_CONFIG_H

#include <stdbool.h>
#include <stddef.h>

/*
 * The plugin's arguments in plugstack.conf. The strings belong to Slurm and live as long as the process.
 */
struct config {
	const char *run_dir;    /* the directory with the agent's socket and the lease files */
	const char *job_object; /* path of the Go object; NULL: libcaelum_spank.so beside the plugin */
	unsigned wait;          /* the number of seconds for which a prolog waits for the agent */
	bool memory_growth;     /* JAX and TensorFlow must not reserve GPU memory (growth.c) */
};

/*
 * Fills config from av, with defaults for missing arguments. Returns 0, or -1 with the reason in why if an argument is
 * unknown or has an invalid value; config then holds the valid arguments.
 */
int config_parse(struct config *config, int ac, char **av, char *why, size_t size);

/* Reports whether the node has the run directory. On a node without it the plugin does nothing. */
int config_managed(const struct config *config);

#endif
