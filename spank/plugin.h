#ifndef CAELUM_PLUGIN_H
#define CAELUM_PLUGIN_H

#include <slurm/spank.h>

/* The functions in prolog.c run as root, in a process that runs nothing but the SPANK prolog or epilog. */
int caelum_prolog(spank_t sp, int ac, char **av);
int caelum_epilog(spank_t sp, int ac, char **av);

/* The functions in task.c run in the child process that slurmstepd forks for a task, before the exec. */
int caelum_task_privileged(spank_t sp, int ac, char **av);
int caelum_task(spank_t sp, int ac, char **av);

#endif
