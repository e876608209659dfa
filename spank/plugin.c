/*
 * Which callback does what. Everything that runs in sbatch, srun, salloc, slurmd and slurmstepd is in this folder's C
 * files; README.md says why none of it may be Go.
 *
 * Callbacks return 0 or -1, never 1: Slurm up to 24.11 counts only negative values as failures, later ones any other
 * than 0. What a -1 costs is in docs/plugin-errors.md.
 */
#include "config.h"
#include "option.h"
#include "plugin.h"

SPANK_PLUGIN(caelum, 1)

static void offer(spank_t sp, struct spank_option *option)
{
	spank_err_t rc = spank_option_register(sp, option);

	if (rc != ESPANK_SUCCESS)
		slurm_error("caelum: init: couldn't register --%s: %s; jobs run without it", option->name, spank_strerror(rc));
}

/*
 * Runs in every client and daemon, so it never fails: a -1 here would end sbatch, keep slurmd from starting and drain
 * the nodes of running jobs. A mistake in plugstack.conf is told where an admin looks, in slurmd's log, and again by the
 * prolog, which refuses to start GPU jobs with it.
 */
int slurm_spank_init(spank_t sp, int ac, char **av)
{
	struct config config;
	char why[256];

	if (spank_context() == S_CTX_SLURMD && config_parse(&config, ac, av, why, sizeof(why)) < 0)
		slurm_error("caelum: init: couldn't read the plugstack.conf line: %s; correct it, GPU jobs on this node fail until then", why);

	offer(sp, &option_mig);
	offer(sp, &option_mig_mem);
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
