/*
 * Takes Slurm's place in the plugin's tests: loads the plugin as Slurm does, implements the functions that it expects
 * from Slurm, and runs a script.
 *
 *   harness PLUGIN SCRIPT [plugstack arguments...]
 *
 *   context NAME            sets the result of spank_context(): local, remote, allocator, slurmd, job_script
 *   item NAME VALUE         sets a result of spank_get_item(): job, uid, gid, step, restart, task
 *   env NAME=VALUE          sets a variable of the task's environment, for spank_getenv(); "env NAME" unsets it
 *   process NAME=VALUE      sets a variable of this process's own environment, which a prolog reads
 *   option NAME VALUE       sets --NAME=VALUE as the user's option
 *   refuse NAME             makes spank_setenv() fail for this variable
 *   device N deny|closed|gone    makes access() fail for /dev/caelum/slotN: EPERM (devices cgroup), EACCES (file
 *                           mode) or ENOENT (not a slot)
 *   inode PATH N            makes stat() succeed for this path, with the inode number N
 *   node-reason TEXT        sets the node's reason in slurmctld; "node-reason" removes the reason
 *   slurmctld away          makes slurmctld unreachable until "slurmctld back"
 *   request NAME VALUE      sets Slurm's option --NAME=VALUE of sbatch, srun or salloc
 *   show NAME               prints a variable of this process's own environment
 *   close-stdin             closes file descriptor 0
 *   call NAME               calls slurm_spank_NAME()
 *   choose NAME VALUE       calls the callback of --NAME, as when a job is submitted
 *   census                  prints the number of threads, and of signal handlers that changed since the plugin was loaded
 *
 * Every line of output is one of the plugin's actions or the result of a command.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <fcntl.h>
#include <unistd.h>

#include <slurm/slurm.h>
#include <slurm/spank.h>

#define VARS 64

static enum spank_context context = S_CTX_REMOTE;
static uint32_t items[6] = { 12, 0, 0, 0, 0, 0 };
static const char *const item_names[6] = { "job", "uid", "gid", "step", "restart", "task" };
static const spank_item_t item_kinds[6] = { S_JOB_ID, S_JOB_UID, S_JOB_GID, S_JOB_STEPID, S_SLURM_RESTART_COUNT, S_TASK_ID };
static char *vars[VARS];

/* The plugin's options and their values. A prolog reads options without registering them first. */
static struct {
	struct spank_option *option;
	const char *name;
	char *value;
} options[4];

static int devices[64];
static char *refused; /* the variable for which spank_setenv() fails */
static char *faked;   /* the path with a given inode number */
static ino_t inode;
static bool away;
static char *node_reason;

/* sbatch's, srun's and salloc's variable with the user's options */
struct {
	const char *name;
	char *value;
} opt[8];
static struct sigaction before[65];

static char **find_var(const char *name, size_t n)
{
	for (int i = 0; i < VARS; i++) {
		if (vars[i] && strncmp(vars[i], name, n) == 0 && vars[i][n] == '=')
			return &vars[i];
	}
	return NULL;
}

static void put_var(const char *assignment)
{
	size_t n = strcspn(assignment, "=");
	char **var = find_var(assignment, n);

	for (int i = 0; !var && i < VARS; i++) {
		if (!vars[i])
			var = &vars[i];
	}
	*var = assignment[n] ? strdup(assignment) : NULL;
}

static void print(const char *level, const char *format, va_list args)
{
	printf("%s: ", level);
	vprintf(format, args);
	printf("\n");
	fflush(stdout);
}

#define LOGGER(name, level) \
	void name(const char *format, ...) \
	{ \
		va_list args; \
		va_start(args, format); \
		print(level, format, args); \
		va_end(args); \
	}
LOGGER(slurm_error, "error")
LOGGER(slurm_info, "info")
LOGGER(slurm_spank_log, "log")

spank_context_t spank_context(void)
{
	return context;
}

const char *spank_strerror(spank_err_t err)
{
	return err == ESPANK_NOT_AVAIL ? "not available" : "some error";
}

/* Returns the index of an option's entry. For a new name, adds an entry. */
static int option_at(const char *name)
{
	int i = 0;

	while (options[i].name && strcmp(options[i].name, name) != 0)
		i++;
	if (!options[i].name)
		options[i].name = strdup(name);
	return i;
}

spank_err_t spank_option_register(spank_t sp, struct spank_option *opt)
{
	(void)sp;
	options[option_at(opt->name)].option = opt;
	printf("registered --%s=%s\n", opt->name, opt->arginfo);
	return ESPANK_SUCCESS;
}

spank_err_t spank_option_getopt(spank_t sp, struct spank_option *opt, char **value)
{
	(void)sp;
	*value = options[option_at(opt->name)].value;
	return *value ? ESPANK_SUCCESS : ESPANK_ERROR;
}

spank_err_t spank_get_item(spank_t sp, spank_item_t item, ...)
{
	va_list args;
	int i = 0;

	(void)sp;
	while (i < 6 && item_kinds[i] != item)
		i++;
	if (i == 6 || (context == S_CTX_JOB_SCRIPT && i > 2) || context == S_CTX_SLURMD)
		return ESPANK_NOT_AVAIL;
	va_start(args, item);
	*va_arg(args, uint32_t *) = items[i];
	va_end(args);
	return ESPANK_SUCCESS;
}

spank_err_t spank_getenv(spank_t sp, const char *name, char *buf, int len)
{
	char **var = find_var(name, strlen(name));

	(void)sp;
	if (context != S_CTX_REMOTE)
		return ESPANK_NOT_REMOTE;
	if (!var)
		return ESPANK_ENV_NOEXIST;
	if (snprintf(buf, len, "%s", *var + strlen(name) + 1) >= len)
		return ESPANK_NOSPACE;
	return ESPANK_SUCCESS;
}

spank_err_t spank_setenv(spank_t sp, const char *name, const char *value, int overwrite)
{
	char *assignment;

	(void)sp, (void)overwrite;
	if (refused && strcmp(name, refused) == 0)
		return ESPANK_ERROR;
	if (asprintf(&assignment, "%s=%s", name, value) < 0)
		abort();
	put_var(assignment);
	printf("set %s\n", assignment);
	free(assignment);
	return ESPANK_SUCCESS;
}

spank_err_t spank_unsetenv(spank_t sp, const char *name)
{
	(void)sp;
	put_var(name);
	printf("unset %s\n", name);
	return ESPANK_SUCCESS;
}

spank_err_t spank_job_control_setenv(spank_t sp, const char *name, const char *value, int overwrite)
{
	(void)sp, (void)overwrite;
	printf("set for the job's programs: %s=%s\n", name, value);
	return ESPANK_SUCCESS;
}

spank_err_t spank_job_control_unsetenv(spank_t sp, const char *name)
{
	(void)sp;
	printf("unset for the job's programs: %s\n", name);
	return ESPANK_SUCCESS;
}

/* The functions of Slurm's client library that the plugin calls. */
char *slurm_option_get(void *options, const char *name)
{
	for (size_t i = 0; options == opt && i < 8 && opt[i].name; i++) {
		if (strcmp(opt[i].name, name) == 0)
			return strdup(opt[i].value);
	}
	return NULL;
}

bool slurm_option_isset(void *options, const char *name)
{
	char *value = slurm_option_get(options, name);

	free(value);
	return value != NULL;
}

int slurm_option_set(void *options, const char *name, const char *value, bool early)
{
	(void)options, (void)early;
	printf("request --%s=%s\n", name, value);
	return SLURM_SUCCESS;
}

static void request(const char *name, const char *value)
{
	int i = 0;

	while (i < 7 && opt[i].name && strcmp(opt[i].name, name) != 0)
		i++;
	opt[i].name = strdup(name);
	opt[i].value = strdup(value);
}

void slurm_init(const char *conf)
{
	(void)conf;
}

int slurm_load_node_single(node_info_msg_t **answer, char *name, uint16_t flags)
{
	node_info_msg_t *info;

	(void)flags;
	if (away)
		return SLURM_ERROR;
	info = calloc(1, sizeof(*info));
	info->record_count = 1;
	info->node_array = calloc(1, sizeof(*info->node_array));
	info->node_array[0].name = name;
	info->node_array[0].reason = node_reason;
	*answer = info;
	return SLURM_SUCCESS;
}

void slurm_free_node_info_msg(node_info_msg_t *info)
{
	free(info->node_array);
	free(info);
}

void slurm_init_update_node_msg(update_node_msg_t *update)
{
	memset(update, 0, sizeof(*update));
	update->node_state = NO_VAL;
	update->weight = NO_VAL;
}

int slurm_update_node(update_node_msg_t *update)
{
	printf("slurmctld: node %s%s%s, reason: %s\n", update->node_names, update->node_state == NODE_STATE_DRAIN ? " drained" : "",
	       update->weight == NO_VAL && !update->gres && !update->features ? "" : " and more", update->reason);
	return SLURM_SUCCESS;
}

/* Replaces access() in the plugin, so that the tests need no real devices cgroup. */
int access(const char *path, int mode)
{
	unsigned slot;

	if (sscanf(path, "/dev/caelum/slot%u", &slot) == 1 && slot < 64) {
		errno = devices[slot];
		return devices[slot] ? -1 : 0;
	}
	return faccessat(AT_FDCWD, path, mode, 0);
}

/* Replaces stat() in the plugin, so that a test can give a cgroup any inode number. */
int stat(const char *restrict path, struct stat *restrict st)
{
	if (!faked || strcmp(path, faked) != 0)
		return fstatat(AT_FDCWD, path, st, 0);
	*st = (struct stat){ .st_ino = inode, .st_mode = S_IFDIR | 0755 };
	return 0;
}

static int threads(void)
{
	DIR *dir = opendir("/proc/self/task");
	int n = 0;

	for (struct dirent *e; dir && (e = readdir(dir));)
		n += e->d_name[0] != '.';
	closedir(dir);
	return n;
}

static int signals_changed(void)
{
	struct sigaction now;
	int n = 0;

	for (int sig = 1; sig < 65; sig++) {
		memset(&now, 0, sizeof(now));
		/*
		 * The kernel fills only 8 bytes of the mask, and glibc fills the rest from uninitialized stack memory.
		 */
		if (sigaction(sig, NULL, &now) == 0)
			n += now.sa_handler != before[sig].sa_handler || now.sa_flags != before[sig].sa_flags ||
			     memcmp(&now.sa_mask, &before[sig].sa_mask, 8) != 0;
	}
	return n;
}

static void set_context(const char *name)
{
	static const struct {
		const char *name;
		enum spank_context context;
	} all[] = {
		{ "local", S_CTX_LOCAL },
		{ "remote", S_CTX_REMOTE },
		{ "allocator", S_CTX_ALLOCATOR },
		{ "slurmd", S_CTX_SLURMD },
		{ "job_script", S_CTX_JOB_SCRIPT },
	};

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		if (strcmp(name, all[i].name) == 0)
			context = all[i].context;
	}
}

static bool set_item(const char *name, const char *value)
{
	for (int i = 0; i < 6; i++) {
		if (strcmp(name, item_names[i]) == 0) {
			items[i] = strtoul(value, NULL, 10);
			return true;
		}
	}
	return false;
}

static void call(void *plugin, const char *name, int ac, char **av)
{
	char symbol[128];
	spank_f *f;

	snprintf(symbol, sizeof(symbol), "slurm_spank_%s", name);
	f = (spank_f *)dlsym(plugin, symbol);
	if (f)
		printf("%s = %d\n", name, f(NULL, ac, av));
	else
		printf("%s: the plugin has no such callback\n", name);
}

static void choose(const struct spank_option *option, const char *value)
{
	printf("--%s=%s = %d\n", option->name, value, option->cb(option->val, value, 0));
}

static bool step(void *plugin, char *line, int ac, char **av)
{
	char *verb = strsep(&line, " ");
	char *rest = line ? line : "";
	char *first = NULL;
	bool known = true;

	if (strcmp(verb, "context") == 0)
		set_context(rest);
	else if (strcmp(verb, "item") == 0)
		first = strsep(&rest, " "), known = rest && set_item(first, rest);
	else if (strcmp(verb, "env") == 0)
		put_var(rest);
	else if (strcmp(verb, "process") == 0)
		putenv(strdup(rest));
	else if (strcmp(verb, "option") == 0)
		first = strsep(&rest, " "), options[option_at(first)].value = strdup(rest ? rest : "");
	else if (strcmp(verb, "refuse") == 0)
		refused = strdup(rest);
	else if (strcmp(verb, "device") == 0)
		first = strsep(&rest, " "), devices[atoi(first) & 63] = strcmp(rest, "deny") == 0 ? EPERM : strcmp(rest, "gone") == 0 ? ENOENT
																      : EACCES;
	else if (strcmp(verb, "inode") == 0)
		first = strsep(&rest, " "), faked = strdup(first), inode = strtoull(rest ? rest : "", NULL, 10);
	else if (strcmp(verb, "node-reason") == 0)
		node_reason = rest[0] ? strdup(rest) : NULL;
	else if (strcmp(verb, "slurmctld") == 0)
		away = strcmp(rest, "away") == 0;
	else if (strcmp(verb, "request") == 0)
		first = strsep(&rest, " "), request(first, rest ? rest : "");
	else if (strcmp(verb, "show") == 0)
		printf("%s=%s\n", rest, getenv(rest) ? getenv(rest) : "");
	else if (strcmp(verb, "close-stdin") == 0)
		close(0);
	else if (strcmp(verb, "call") == 0)
		call(plugin, rest, ac, av);
	else if (strcmp(verb, "choose") == 0)
		first = strsep(&rest, " "), choose(options[option_at(first)].option, rest ? rest : "");
	else if (strcmp(verb, "census") == 0)
		printf("threads %d, signals changed %d\n", threads(), signals_changed());
	else
		known = false;
	fflush(stdout);
	return known;
}

int main(int argc, char **argv)
{
	char line[4096];
	FILE *script;
	void *plugin;

	if (argc < 3 || !(script = fopen(argv[2], "re")))
		return 2;
	for (int sig = 1; sig < 65; sig++)
		sigaction(sig, NULL, &before[sig]);
	if (!(plugin = dlopen(argv[1], RTLD_LAZY))) {
		printf("dlopen: %s\n", dlerror());
		return 2;
	}
	while (fgets(line, sizeof(line), script)) {
		line[strcspn(line, "\n")] = '\0';
		if (line[0] && !step(plugin, line, argc - 3, argv + 3)) {
			printf("harness: no such step: %s\n", line);
			return 2;
		}
	}
	return 0;
}
