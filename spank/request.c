/*
 * Reads and changes the request of sbatch, srun or salloc before it is sent. SPANK has no functions for this: the values
 * of the options are in the program's variable opt, and libslurmfull, which the program is linked with, has the
 * functions that read and set them (slurm_opt.h, 22.05 to 26.05). Without them, requests remain as they are.
 */
#include "request.h"

#include <dlfcn.h>
#include <regex.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPTION "_SLURM_SPANK_OPTION_caelum_" /* the prefix of the options that job_submit.lua reads */
#define TYPES "CAELUM_STATIC_TYPES"          /* the variable with the types that were removed from a job's request */
#define TYPE_MAX 64                          /* the maximum length of a type, with its NUL */

/* The options that can contain the type of a GPU. */
static const char *const gpu_options[] = { "gres", "gpus", "gpus-per-node",
					   "gpus-per-socket", "gpus-per-task", "tres-per-task" };

#define N_OPTIONS (sizeof(gpu_options) / sizeof(gpu_options[0]))

static bool isset(const char *option)
{
	bool (*isset)(void *, const char *) = (bool (*)(void *, const char *))dlsym(RTLD_DEFAULT, "slurm_option_isset");
	void *opt = dlsym(RTLD_DEFAULT, "opt");

	return isset && opt && isset(opt, option);
}

void request_mark(spank_t sp)
{
	if (isset("test-only"))
		spank_job_control_setenv(sp, OPTION "test_only", "1", 1);
	if (isset("parsable"))
		spank_job_control_setenv(sp, OPTION "quiet", "1", 1);
}

/* Reports whether a comma-separated list contains a type. */
static bool listed(const char *list, const char *type)
{
	size_t n;

	for (; *list; list += n + (list[n] == ',')) {
		n = strcspn(list, ",");
		if (n == strlen(type) && !strncmp(list, type, n))
			return true;
	}
	return false;
}

/* Reports whether a type ends with the name of a profile, such as 1g.10gb+me or 1f.11gb, as job_submit.lua does. */
static bool names_profile(const char *type)
{
	regex_t profile;
	bool match;

	if (regcomp(&profile, "^([A-Za-z0-9_.+-]*[_.-])?[0-9]+[fg]\\.[0-9]+gb[a-z0-9.+-]*$", REG_EXTENDED | REG_NOSUB))
		return false;
	match = !regexec(&profile, type, 0, NULL, 0);
	regfree(&profile);
	return match;
}

static const char *after(const char *text, const char *prefix)
{
	return strncmp(text, prefix, strlen(prefix)) ? text : text + strlen(prefix);
}

/* Returns an entry of a list of GRES without the prefix that Slurm adds to it. */
static const char *gres_of(const char *entry)
{
	return after(after(entry, "gres:"), "gres/");
}

/* Returns the type in an entry such as gres:gpu:a100:2 or, if the option counts only GPUs, a100:2; or NULL. */
static const char *type_of(const char *entry, bool only_gpus)
{
	const char *gres = gres_of(entry), *kind = after(gres, "gpu:");

	if (kind == gres && (!only_gpus || gres != entry))
		return NULL;
	return strspn(kind, "0123456789") == strcspn(kind, ",") ? NULL : kind; /* a number is a count */
}

/* Reports whether an entry is for GPUs. */
static bool is_gpu(const char *entry, bool only_gpus)
{
	const char *gres = gres_of(entry);

	return only_gpus || (!strncmp(gres, "gpu", 3) && (!gres[3] || strchr(":=,", gres[3])));
}

void request_warn_no_gpu(void)
{
	char *(*get)(void *, const char *) = (char *(*)(void *, const char *))dlsym(RTLD_DEFAULT, "slurm_option_get");
	void *opt = dlsym(RTLD_DEFAULT, "opt");
	char *gres = get && opt ? get(opt, "gres") : NULL;
	bool slices = false;

	for (const char *entry = gres, *next; entry && *entry; entry = next + (*next == ',')) {
		const char *name = gres_of(entry);

		next = entry + strcspn(entry, ",");
		if (is_gpu(entry, false))
			return;
		slices = slices || (!strncmp(name, "mig", 3) && strchr(":=", name[3]));
	}
	for (size_t i = 1; slices && i < N_OPTIONS; i++)
		slices = !isset(gpu_options[i]);
	if (slices)
		slurm_info("caelum: the step gets no device, because it requests a slice but no GPU: write "
			   "--gres=gpu:1,mig:PROFILE:1");
}

/*
 * Removes the types in the list from the value of an option, or those that name a profile if list is NULL:
 * gres:gpu:a100_1g.5gb:2 becomes gres:gpu:2, and 1g.5gb becomes 1. Copies the removed type to type, which contains the
 * type that was removed before. Returns the number of types removed. Without a list, it returns -1 if the types differ, or
 * if the value requests other GPUs, because Slurm refuses GPUs with and without a type in one request.
 */
static int remove_types(char *value, bool only_gpus, const char *list, char type[TYPE_MAX])
{
	char *to = value, found[TYPE_MAX];
	int removed = 0;

	for (const char *entry = value, *next; *entry; entry = next) {
		const char *kind = type_of(entry, only_gpus), *rest = kind;
		size_t n = kind ? strcspn(kind, ":=,") : 0;
		bool match = false;

		next = entry + strcspn(entry, ",");
		if (n > 0 && n < sizeof(found)) {
			snprintf(found, sizeof(found), "%.*s", (int)n, kind);
			rest = kind + n;
			rest += *rest == ':' || *rest == '=';
			match = (list ? listed(list, found) : names_profile(found)) && rest + strspn(rest, "0123456789") == next;
		}
		if (!list && is_gpu(entry, only_gpus) && (!match || (type[0] && strcmp(type, found))))
			return -1;
		next += *next == ',';
		if (!match)
			rest = kind = entry;
		else
			strcpy(type, found);
		memmove(to, entry, kind - entry);
		to += kind - entry;
		if (match && (!*rest || *rest == ','))
			*to++ = '1';
		memmove(to, rest, next - rest);
		to += next - rest;
		removed += match;
	}
	*to = '\0';
	return removed;
}

/* Adds a type to the variable with the types that were removed from the components of a job. */
static void remember(const char *type)
{
	const char *before = getenv(TYPES);
	char list[1024];

	if (!before || snprintf(list, sizeof(list), "%s,%s", before, type) >= (int)sizeof(list))
		setenv(TYPES, type, 1);
	else
		setenv(TYPES, list, 1);
}

void request_remove_static(spank_t sp)
{
	static bool later; /* whether this is a later component of a het job */
	char *(*get)(void *, const char *) = (char *(*)(void *, const char *))dlsym(RTLD_DEFAULT, "slurm_option_get");
	int (*set)(void *, const char *, const char *, bool) =
		(int (*)(void *, const char *, const char *, bool))dlsym(RTLD_DEFAULT, "slurm_option_set");
	void *opt = dlsym(RTLD_DEFAULT, "opt");
	bool step = spank_context() == S_CTX_LOCAL && (getenv("SLURM_JOB_ID") || isset("jobid"));
	const char *list = step ? getenv(TYPES) : NULL;
	char *values[N_OPTIONS] = { NULL }, type[TYPE_MAX] = "";
	int removed[N_OPTIONS] = { 0 };

	if (!step) { /* A job that was submitted by another one must not take over its types. */
		if (!later)
			unsetenv(TYPES);
		later = true;
		spank_job_control_unsetenv(sp, OPTION "static");
	}
	/*
	 * Types remain in a request of sbatch, because job_submit.lua can replace them, also in the job's environment, and in
	 * a request to other clusters, which may not have this job_submit.lua.
	 */
	if (!get || !set || !opt || dlsym(RTLD_DEFAULT, "sbopt") || (step ? !list : isset("clusters")))
		return;
	for (size_t i = 0; i < N_OPTIONS; i++) {
		bool only_gpus = !strncmp(gpu_options[i], "gpus", 4);

		values[i] = get(opt, gpu_options[i]);
		/* With --tres-per-task, srun 24.11 uses a part of its value as the value of --gpus-per-task. */
		if (values[i] && only_gpus && !strncmp(values[i], "gres", 4))
			return;
		removed[i] = values[i] ? remove_types(values[i], only_gpus, list, type) : 0;
		if (removed[i] < 0)
			return;
	}
	for (size_t i = 0; i < N_OPTIONS; i++) {
		if (removed[i] > 0)
			set(opt, gpu_options[i], values[i], false);
	}
	if (!step && type[0]) {
		remember(type);
		spank_job_control_setenv(sp, OPTION "static", type, 1);
	}
}
