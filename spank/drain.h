#ifndef CAELUM_DRAIN_H
#define CAELUM_DRAIN_H

/*
 * Drains the node with this reason, unless the node already has a reason. Only a prolog that is about to fail may
 * call this function.
 */
void drain(const char *node, const char *reason);

#endif
