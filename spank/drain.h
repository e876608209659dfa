#ifndef CAELUM_DRAIN_H
#define CAELUM_DRAIN_H

/* Drains the node with the given reason, unless it already has one. Only a failing prolog may call it. */
void drain(const char *node, const char *reason);

#endif
