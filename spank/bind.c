#include "bind.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Returns the list after one of the words, or NULL. mask is true if the list contains masks. */
static const char *list_in(const char *binding, bool *mask)
{
	static const struct {
		const char *word;
		bool mask;
	} words[] = { { "map_gpu:", false }, { "map:", false }, { "mask_gpu:", true }, { "mask:", true } };
	const char *gpu = strstr(binding, "gpu:");

	if (!gpu || (gpu != binding && gpu[-1] != '/'))
		return NULL;
	gpu += strlen("gpu:");
	if (strncasecmp(gpu, "verbose,", strlen("verbose,")) == 0)
		gpu += strlen("verbose,");
	for (unsigned i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		size_t length = strlen(words[i].word);

		if (strncasecmp(gpu, words[i].word, length) == 0) {
			*mask = words[i].mask;
			return gpu + length;
		}
	}
	return NULL;
}

/* Parses the entry at *text, a number with an optional "*" and the number of tasks to which it applies. */
static bool next_entry(const char **text, unsigned long long *value, unsigned long long *tasks)
{
	char *end;

	*value = strtoull(*text, &end, 0);
	if (end == *text)
		return false;
	*tasks = 1;
	if (*end == '*') {
		*tasks = strtoull(end + 1, &end, 10);
		if (*tasks == 0 || *tasks > UINT32_MAX)
			*tasks = 1;
	}
	*text = *end == ',' ? end + 1 : end;
	return true;
}

/* Finds the entry of a task. The result is false if the list has no valid entry. */
static bool entry_of(const char *list, unsigned long long task, unsigned long long *value)
{
	unsigned long long tasks, total = 0;
	const char *text = list;

	while (*text && next_entry(&text, value, &tasks))
		total += tasks;
	if (total == 0)
		return false;
	task %= total;
	for (text = list; next_entry(&text, value, &tasks) && task >= tasks;)
		task -= tasks;
	return true;
}

bool bind_slots(struct slots *own, const char *binding, unsigned task, const struct slots *step)
{
	bool mask = false;
	const char *list = list_in(binding, &mask);
	unsigned long long value = 0;

	if (!list || step->n == 0)
		return false;
	own->n = 0;
	if (entry_of(list, task, &value)) {
		for (unsigned i = 0; i < step->n; i++) {
			if (mask ? i < 64 && (value >> i & 1) : i == value)
				own->slot[own->n++] = step->slot[i];
		}
	}
	if (own->n == 0)
		own->slot[own->n++] = step->slot[0];
	return true;
}
