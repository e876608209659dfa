/*
 * Prevents JAX and TensorFlow from reserving GPU memory that the program does not use. By default, JAX reserves 75% of
 * a slice's memory when it starts, and TensorFlow nearly all of it. A job's measured peak memory would then depend only
 * on its slice, and Caelum could never predict a smaller one. Sources: "GPU memory allocation" in the JAX
 * documentation, and "Limiting GPU memory growth" in TensorFlow's guide "Use a GPU".
 */
#include "growth.h"

#include <slurm/slurm.h>
#include <stdbool.h>
#include <stddef.h>

/*
 * The variables that the plugin sets. For each of them, settings lists the variables that a user can set to configure
 * the framework's memory. JAX reads the memory fraction under two names, of which XLA_PYTHON_CLIENT_MEM_FRACTION is the
 * older.
 */
static const struct {
	const char *name, *value;
	const char *settings[5]; /* ends with NULL */
} frameworks[] = {
	{ "XLA_PYTHON_CLIENT_PREALLOCATE",
	  "false",
	  { "XLA_PYTHON_CLIENT_PREALLOCATE", "XLA_PYTHON_CLIENT_ALLOCATOR", "XLA_CLIENT_MEM_FRACTION",
	    "XLA_PYTHON_CLIENT_MEM_FRACTION" } },
	{ "TF_FORCE_GPU_ALLOW_GROWTH", "true", { "TF_FORCE_GPU_ALLOW_GROWTH" } },
};

/* Reports whether the variable is in the environment, even if its value is empty or too long for the buffer. */
static bool present(spank_t sp, const char *name)
{
	char value[2];

	return spank_getenv(sp, name, value, sizeof(value)) != ESPANK_ENV_NOEXIST;
}

static bool configured(spank_t sp, const char *const *names)
{
	for (; *names; names++) {
		if (present(sp, *names))
			return true;
	}
	return false;
}

void growth_set(spank_t sp, uint32_t job)
{
	for (size_t i = 0; i < sizeof(frameworks) / sizeof(frameworks[0]); i++) {
		const char *name = frameworks[i].name, *value = frameworks[i].value;
		spank_err_t rc;

		if (configured(sp, frameworks[i].settings))
			continue;
		if ((rc = spank_setenv(sp, name, value, 1)) != ESPANK_SUCCESS)
			slurm_error("caelum: task: job %u: couldn't set %s: %s; "
				    "set %s=%s in the job, or its next run may get a slice that is too large",
				    job, name, spank_strerror(rc), name, value);
	}
}
