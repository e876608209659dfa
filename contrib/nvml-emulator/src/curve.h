/* How much memory a process uses over time: "0:500,2:3000" is 500 MiB at the start and 3000 from second 2 on, linear
 * in between. Before the first point it is that point's, after the last the last one's. */
#ifndef EMU_CURVE_H
#define EMU_CURVE_H

#include <stdbool.h>

#define CURVE_MAX 64

struct curve {
    int n;
    double seconds[CURVE_MAX];
    unsigned mib[CURVE_MAX];
};

/* curve_parse is false for a text that is none, or whose times do not rise. */
bool curve_parse(const char *text, struct curve *c);
unsigned curve_at(const struct curve *c, double seconds);

#endif
