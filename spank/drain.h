#ifndef CAELUM_DRAIN_H
#define CAELUM_DRAIN_H

/*
 * Drains the node with this reason, unless the node already has a reason. Must be called only by a prolog that is about
 * to fail.
 */
void drain(const char *node, const char *reason);

#endif
