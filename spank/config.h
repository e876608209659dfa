#ifndef CAELUM_CONFIG_H
#define CAELUM_CONFIG_H

#include <stdbool.h>
#include <stddef.h>

/* The plugin's arguments in plugstack.conf. The strings belong to Slurm, and remain valid until the process ends. */
struct config {
	const char *run_dir;    /* the directory with the agent's socket and the lease files */
	const char *job_object; /* path of the Go object; NULL means libcaelum_spank.so in the plugin's directory */
	unsigned wait;          /* how long a prolog waits for the agent, in seconds */
	bool memory_growth;     /* whether JAX and TensorFlow must allocate GPU memory on demand (growth.c) */
	bool nvidia_visible;    /* whether to set NVIDIA_VISIBLE_DEVICES (task.c) */
};

/*
 * Fills config from av. Missing arguments get their default values. Returns 0 if all arguments are valid. Otherwise,
 * returns -1 with the reason in why, and sets only the valid arguments in config.
 */
int config_parse(struct config *config, int ac, char **av, char *why, size_t size);

/* Reports whether the node has the run directory. On nodes without it, the plugin does nothing. */
int config_managed(const struct config *config);

#endif
