/* The event loop (loop.c). */
#ifndef LOOP_H
#define LOOP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/units.h"

struct fabric;

void fabric_run(struct fabric *f);
ps_t clock_limit(const struct fabric *f);
bool fabric_step(struct fabric *f);

#endif
