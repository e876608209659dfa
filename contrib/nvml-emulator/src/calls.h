/*
 * This header declares the counters of NVML calls. They are in the file <state>.calls, which all processes map into their
 * memory, so that a call that changes nothing needs no write transaction.
 */
#ifndef EMU_CALLS_H
#define EMU_CALLS_H

#include "names.h"

/* calls_reset creates the file, or sets all counters to 0. It returns 0, or -1 with errno set. */
int calls_reset(const char *state);

/* calls_open maps the counters of all kinds of calls, or returns NULL. The file must exist. */
uint64_t *calls_open(const char *state);

#endif
