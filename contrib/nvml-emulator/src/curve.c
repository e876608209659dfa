#include "curve.h"

#include <stdlib.h>

bool curve_parse(const char *text, struct curve *c)
{
    c->n = 0;
    for (;;) {
        char *end;
        double seconds = strtod(text, &end);
        if (end == text || *end != ':' || seconds < 0 || c->n == CURVE_MAX || (c->n && seconds <= c->seconds[c->n - 1]))
            return false;
        text = end + 1;
        unsigned long mib = strtoul(text, &end, 10);
        if (*text < '0' || *text > '9' || mib > 100000000 || (*end && *end != ','))
            return false;
        c->seconds[c->n] = seconds;
        c->mib[c->n++] = (unsigned)mib;
        if (!*end)
            return true;
        text = end + 1;
    }
}

unsigned curve_at(const struct curve *c, double seconds)
{
    int i = 0;
    while (i < c->n && c->seconds[i] <= seconds)
        i++;
    if (i == 0)
        return c->mib[0];
    if (i == c->n)
        return c->mib[c->n - 1];
    double part = (seconds - c->seconds[i - 1]) / (c->seconds[i] - c->seconds[i - 1]);
    return (unsigned)(c->mib[i - 1] + part * ((double)c->mib[i] - c->mib[i - 1]) + 0.5);
}
