/* What happens when an event's time has come (happen.c). */
#ifndef HAPPEN_H
#define HAPPEN_H

#include <stdbool.h>

struct event;
struct fabric;

void event_run(struct fabric *f, const struct event *e);
bool event_must_wait(const struct fabric *f, const struct event *e);
bool event_may_wait(const struct event *e);

#endif
