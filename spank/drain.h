#ifndef CAELUM_DRAIN_H
#define CAELUM_DRAIN_H

/* Drains the node with the given reason, unless the node already has a reason. Only a failing prolog may call drain. */
void drain(const char *node, const char *reason);

#endif
