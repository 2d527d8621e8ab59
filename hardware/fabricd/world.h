/* The whole fabric: its rooms joined at the beginning, given back at the end (world.c). */
#ifndef WORLD_H
#define WORLD_H

#include <stdbool.h>

struct fabric;

void world_join(struct fabric *f);
void fabric_free(struct fabric *f);
bool privileges_drop(struct fabric *f, unsigned user);

#endif
