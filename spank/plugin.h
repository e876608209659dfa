#ifndef CAELUM_PLUGIN_H
#define CAELUM_PLUGIN_H

#include <slurm/spank.h>

/* prolog.c: root, in a process of its own that only runs plugins. */
int caelum_prolog(spank_t sp, int ac, char **av);
int caelum_epilog(spank_t sp, int ac, char **av);

/* task.c: the child that slurmstepd forked for a task and that has not exec'd yet. */
int caelum_task_privileged(spank_t sp, int ac, char **av);
int caelum_task(spank_t sp, int ac, char **av);

#endif
