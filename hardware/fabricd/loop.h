/* The event loop (loop.c). */
#ifndef LOOP_H
#define LOOP_H

#include <stdbool.h>
#include <stdint.h>

struct fabric;

void fabric_run(struct fabric *f);
bool fabric_step(struct fabric *f);

#endif
