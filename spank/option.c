#include "option.h"

#include <string.h>

#define MIG_MAX 31

/*
 * The characters of profile names (internal/mig, validName; NVML's own are like 1g.10gb+me), which "auto" shares. The node checks
 * the value again: the prolog gets it from the user's environment, around this callback.
 */
bool option_valid(const char *text)
{
	static const char valid[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.+-_";
	size_t n = strspn(text, valid);

	return n > 0 && n <= MIG_MAX && text[n] == '\0' && !strchr(".+-_", text[0]);
}

static int check(int val, const char *arg, int remote)
{
	(void)val;
	if (arg && option_valid(arg))
		return 0;
	if (!remote)
		slurm_error("caelum: --mig: couldn't read '%.40s': give a profile such as 1g.5gb, or auto",
			    arg ? arg : "");
	return -1;
}

struct spank_option option_mig = {
	.name = "mig",
	.arginfo = "PROFILE|auto",
	.usage = "MIG slice for each GPU: a profile such as 1g.5gb, or auto for the one that Caelum predicts",
	.has_arg = 1,
	.cb = check,
};
