#ifndef CAELUM_PLUGIN_H
#define CAELUM_PLUGIN_H

#include <slurm/spank.h>

/* prolog.c: these functions run as root, in a separate process that only runs plugins. */
int caelum_prolog(spank_t sp, int ac, char **av);
int caelum_epilog(spank_t sp, int ac, char **av);

/* task.c: these functions run in the child process that slurmstepd forks for a task, before its exec. */
int caelum_task_privileged(spank_t sp, int ac, char **av);
int caelum_task(spank_t sp, int ac, char **av);

#endif
