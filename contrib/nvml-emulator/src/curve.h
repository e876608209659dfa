/*
 * A curve describes the memory that a process uses over time. "0:500,2:3000" means 500 MiB at the start, 3000 MiB from
 * second 2 on, and linear interpolation in between. Before the first point and after the last one, the curve is
 * constant.
 */
#ifndef EMU_CURVE_H
#define EMU_CURVE_H

#include <stdbool.h>

#define CURVE_MAX 64

struct curve {
    int n;
    double seconds[CURVE_MAX];
    unsigned mib[CURVE_MAX];
};

/* curve_parse parses text into c. It returns false if text is not a curve or the times do not increase. */
bool curve_parse(const char *text, struct curve *c);

/* curve_at returns the memory at a given time, in MiB. */
unsigned curve_at(const struct curve *c, double seconds);

#endif
