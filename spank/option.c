#include "option.h"

#include <string.h>
#include <strings.h>

#define MIG_MAX 31   /* the maximum number of characters of a --mig value */
#define DIGITS_MAX 9 /* the maximum number of digits of a --mig-mem value; doubles represent 9 digits exactly */

/*
 * Accepts the characters of profile names (validName in internal/core/mig; NVML uses names such as 1g.10gb+me), which
 * include those of "auto" and "off". The prolog rechecks the value, because a user can set the option's environment
 * variable without going through check_mig.
 */
bool option_valid(const char *text)
{
	static const char valid[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.+-_";
	size_t n = strspn(text, valid);

	return n > 0 && n <= MIG_MAX && text[n] == '\0' && !strchr(".+-_", text[0]);
}

bool option_valid_size(const char *text)
{
	size_t n = strspn(text, "0123456789");
	const char *unit = text + n;

	if (n == 0 || n > DIGITS_MAX || strspn(text, "0") == n)
		return false;
	if (unit[0] == '\0')
		return true;
	return strchr("KMGTkmgt", unit[0]) && (unit[1] == '\0' || !strcasecmp(unit + 1, "B") || !strcasecmp(unit + 1, "iB"));
}

bool option_valid_growth(const char *text)
{
	return !strcmp(text, "off") || !strcmp(text, "oom") || !strcmp(text, "forecast");
}

static int check_mig(int val, const char *arg, int remote)
{
	(void)val;
	if (arg && option_valid(arg))
		return 0;
	if (!remote)
		slurm_error("caelum: --mig: couldn't read '%.40s': specify a profile such as 1g.5gb, auto, or off for a whole GPU",
			    arg ? arg : "");
	return -1;
}

static int check_mig_mem(int val, const char *arg, int remote)
{
	(void)val;
	if (arg && option_valid_size(arg))
		return 0;
	if (!remote)
		slurm_error("caelum: --mig-mem: couldn't read '%.40s': specify the memory of a slice, as in 8G", arg ? arg : "");
	return -1;
}

static int check_mig_grow(int val, const char *arg, int remote)
{
	(void)val;
	if (arg && option_valid_growth(arg))
		return 0;
	if (!remote)
		slurm_error("caelum: --mig-grow: couldn't read '%.40s': specify off, oom or forecast", arg ? arg : "");
	return -1;
}

struct spank_option option_mig = {
	.name = "mig",
	.arginfo = "PROFILE|auto|off",
	.usage = "MIG slice for each GPU: a profile such as 1g.5gb, auto for a predicted profile, off for a whole GPU",
	.has_arg = 1,
	.cb = check_mig,
};

struct spank_option option_mig_mem = {
	.name = "mig-mem",
	.arginfo = "SIZE[K|M|G|T]",
	.usage = "MIG slice for each GPU: the smallest with this much memory, in MiB or the given unit",
	.has_arg = 1,
	.cb = check_mig_mem,
};

struct spank_option option_mig_grow = {
	.name = "mig-grow",
	.arginfo = "off|oom|forecast",
	.usage = "requeue the job with a larger MIG slice: oom if GPU memory runs out, forecast also before that, off never",
	.has_arg = 1,
	.cb = check_mig_grow,
};
