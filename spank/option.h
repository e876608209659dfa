#ifndef CAELUM_OPTION_H
#define CAELUM_OPTION_H

#include <stdbool.h>

#include <slurm/spank.h>

/* --mig=PROFILE|auto|off and --mig-mem=SIZE of sbatch, srun and salloc. */
extern struct spank_option option_mig;
extern struct spank_option option_mig_mem;

/* Whether text may stand behind --mig=. Such text is safe in a command line, a path and JSON. */
bool option_valid(const char *text);

/* Whether text may stand behind --mig-mem=: MiB, or with K, M, G or T behind the number, and not 0. */
bool option_valid_size(const char *text);

#endif
