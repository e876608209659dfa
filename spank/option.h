#ifndef CAELUM_OPTION_H
#define CAELUM_OPTION_H

#include <stdbool.h>

#include <slurm/spank.h>

/* --mig=PROFILE|auto|off, --mig-mem=SIZE and --mig-grow=off|oom|forecast for sbatch, srun and salloc. */
extern struct spank_option option_mig;
extern struct spank_option option_mig_mem;
extern struct spank_option option_mig_grow;

/* Reports whether text can be a value of --mig. A valid value is safe in a command line, a path and JSON. */
bool option_valid(const char *text);

/* Reports whether text can be a value of --mig-mem: a positive number of MiB, or a positive number and K, M, G or T (8G, 8GB, 8GiB). */
bool option_valid_size(const char *text);

/* Reports whether text can be a value of --mig-grow: off, oom or forecast. */
bool option_valid_growth(const char *text);

#endif
