#ifndef CAELUM_OPTION_H
#define CAELUM_OPTION_H

#include <stdbool.h>

#include <slurm/spank.h>

/* --mig=PROFILE|auto of sbatch, srun and salloc. */
extern struct spank_option option_mig;

/* Whether text may stand behind --mig=. Such text is safe in a command line, a path and JSON. */
bool option_valid(const char *text);

#endif
