/* Which of several ports a frame takes (adaptive.c). */
#ifndef SWITCH_ADAPTIVE_H
#define SWITCH_ADAPTIVE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "switch/params.h"

struct adaptive;
struct fabric;
struct frame;
struct pending;
struct port;
struct sw;
struct ways;

const struct pick_policy *pick_policy_find(const char *name);
const char *pick_policy_name(const struct pick_policy *policy);

const char *pick_policy_set(struct adaptive_params *p, const json_t *params);
json_t *pick_policy_params(const struct adaptive_params *p);

void adaptive_came(struct fabric *f, struct pending *p);
void adaptive_forward(struct fabric *f, struct sw *s, struct ways *ways, struct frame *fr);
void adaptive_forget(struct sw *s);
void adaptive_reconfigured(struct sw *s, const struct port *p);
void adaptive_free(struct adaptive *a);

#endif
