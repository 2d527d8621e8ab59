/* Policies of users' own files (own.c) */
#ifndef MULTIPATH_OWN_H
#define MULTIPATH_OWN_H

#include <jansson.h>
#include <stdbool.h>

struct fabric;

bool own_paths_open(struct fabric *f, const json_t *list);
bool own_paths_load(struct fabric *f);

#endif
