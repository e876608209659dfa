/*
 * Dispatches Slurm's callbacks. All code that runs in sbatch, srun, salloc, slurmd and slurmstepd is in the C files of
 * this directory. README.md explains why it must not be written in Go.
 *
 * Callbacks return 0 or -1, never 1: Slurm up to 24.11 treats only negative values as failures, and later releases
 * treat every value other than 0 as a failure. docs/plugin-errors.md describes the effects of -1.
 */
#include "config.h"
#include "option.h"
#include "plugin.h"
#include "request.h"

SPANK_PLUGIN(caelum, 1)

static void register_option(spank_t sp, struct spank_option *option)
{
	spank_err_t rc = spank_option_register(sp, option);

	if (rc != ESPANK_SUCCESS)
		slurm_error("caelum: init: couldn't register --%s: %s; the option is not available", option->name,
			    spank_strerror(rc));
}

/*
 * Runs in every client and daemon, and never fails: a -1 would end sbatch, prevent slurmd from starting, and drain the
 * nodes of running jobs. An error in plugstack.conf is logged to slurmd's log; the prolog reports it again and fails
 * for GPU jobs.
 */
int slurm_spank_init(spank_t sp, int ac, char **av)
{
	struct config config;
	char why[256];

	if (spank_context() == S_CTX_SLURMD && config_parse(&config, ac, av, why, sizeof(why)) < 0)
		slurm_error("caelum: init: couldn't read the plugstack.conf line: %s; "
			    "correct the line; GPU jobs on this node fail until then",
			    why);

	register_option(sp, &option_mig);
	register_option(sp, &option_mig_mem);
	register_option(sp, &option_mig_grow);
	return 0;
}

int slurm_spank_init_post_opt(spank_t sp, int ac, char **av)
{
	(void)ac;
	(void)av;
	if (spank_context() == S_CTX_LOCAL || spank_context() == S_CTX_ALLOCATOR) {
		request_mark(sp);
		request_remove_static(sp);
		if (spank_context() == S_CTX_LOCAL)
			request_warn_no_gpu();
	}
	return 0;
}

int slurm_spank_job_prolog(spank_t sp, int ac, char **av)
{
	return caelum_prolog(sp, ac, av);
}

int slurm_spank_job_epilog(spank_t sp, int ac, char **av)
{
	return caelum_epilog(sp, ac, av);
}

int slurm_spank_task_init_privileged(spank_t sp, int ac, char **av)
{
	return caelum_task_privileged(sp, ac, av);
}

int slurm_spank_task_init(spank_t sp, int ac, char **av)
{
	return caelum_task(sp, ac, av);
}
