/* Congestion controls of users' own files (own.c) */
#ifndef CC_OWN_H
#define CC_OWN_H

#include <jansson.h>
#include <stdbool.h>

struct fabric;

bool own_controls_open(struct fabric *f, const json_t *list);
bool own_controls_load(struct fabric *f);

#endif
