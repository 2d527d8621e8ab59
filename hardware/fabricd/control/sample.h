/* Time series of the fabric's state (sample.c) */
#ifndef CONTROL_SAMPLE_H
#define CONTROL_SAMPLE_H

#include <jansson.h>
#include <stdbool.h>

#include "base/units.h"

struct control_conn;
struct fabric;
struct port;

ps_t sample_next(const struct fabric *f);
void sample_before(struct fabric *f, ps_t t);
void sample_pause(struct fabric *f, const struct port *p, unsigned class, bool on);
const char *sample_start(struct fabric *f, struct control_conn *c, const json_t *request, json_t *answer);
const char *sample_stop(struct fabric *f, struct control_conn *c, const json_t *request, json_t *answer);
const char *sample_end(struct fabric *f);

#endif
