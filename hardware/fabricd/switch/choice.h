/* Something to choose, and to choose by: what a policy of an adaptive switch has (adaptive.c) */
#ifndef SWITCH_CHOICE_H
#define SWITCH_CHOICE_H

#include <stddef.h>
#include <stdint.h>

#include "link/ways.h"
#include "switch/params.h"

struct fabric;
struct frame;
struct sw;

struct choice {
	struct fabric *f;
	struct sw *s;
	struct ways *ways;
	const struct frame *fr;
	uint64_t draw;
};

struct pick_policy {
	const char *name;
	const char *params[PICK_PARAMS]; /* keys in the configuration */
	uint16_t (*pick)(const struct choice *c); /* one of the ways */
	struct pick_policy *next; /* of those that are in no table (pick_policy_add) */
};

void pick_policy_add(struct pick_policy *policy);

void *pick_memory_of(struct pick_memory *m, const struct pick_policy *policy, size_t bytes);
void pick_forget(struct pick_memory *m);
struct pick_memory *choice_memory(const struct choice *c);
double choice_load(const struct choice *c, uint16_t way);
uint64_t choice_flow(const struct frame *fr);

#endif
