/* A stub that replaces spank_caelum.so in devcluster's tests. Its prolog creates the file /run/plugin-prolog. */
#include <fcntl.h>
#include <unistd.h>

#include <slurm/spank.h>

SPANK_PLUGIN(caelum, 1);

int slurm_spank_job_prolog(spank_t sp, int ac, char **av)
{
	int fd = open("/run/plugin-prolog", O_CREAT | O_WRONLY, 0600);

	(void)sp;
	(void)ac;
	(void)av;
	if (fd < 0)
		return -1;
	close(fd);
	return 0;
}
