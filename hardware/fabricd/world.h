/* The whole fabric: given back at the end (world.c). */
#ifndef WORLD_H
#define WORLD_H

#include <stdbool.h>

struct fabric;

void fabric_free(struct fabric *f);
bool privileges_drop(struct fabric *f);

#endif
