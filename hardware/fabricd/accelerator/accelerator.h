/* Accelerators: aggregation units on a port of a switch. */
#ifndef ACCELERATOR_H
#define ACCELERATOR_H

#include <jansson.h>

#include "link/port.h"

struct roce_packet;
struct sw;

#define FAN_IN_MAX 64 /* bits of a slot's bitmap */

struct program;
struct pool;

#define PROGRAM_CHAINS 64 /* a power of two: jobs' numbers follow each other */

struct accelerator {
	struct node n;
	struct port port;
	struct cable cable; /* to the switch's last port */
	struct sw *sw;
	uint32_t ip, slots, elements, fan_in; /* what there is: slots of so many elements, in two versions */
	uint32_t slots_free, slots_used_max;
	struct program *programs[PROGRAM_CHAINS]; /* of jobs with slots of their own, by the last bits of their numbers */
	struct pool *pool;	  /* slots that all others share; NULL: none */
#define COUNTER(field, name, unit, sort, meaning) uint64_t field;
#define VALUE(expression, name, unit, sort, meaning)
#include "accelerator/counters.def"
};

extern const struct node_ops accelerator_ops;
bool accelerator_load(struct fabric *f, struct accelerator *a, struct sw *s, const json_t *o);
const char *accelerator_program(struct fabric *f, const json_t *request);
uint32_t slots_left(const struct accelerator *a);
void accelerators_release(struct fabric *f, uint32_t job);
json_t *accelerator_json(const struct accelerator *a);
void accelerator_watermarks_clear(struct accelerator *a);
void accelerator_free(struct accelerator *a);

void accelerator_send(struct fabric *f, struct accelerator *a, const struct roce_packet *pkt, uint8_t class);

/* pool.c: slots that best-effort jobs share */
void pool_load(struct accelerator *a, uint32_t slots, bool lent);
uint32_t pool_slots(const struct accelerator *a);
const char *pool_program(struct accelerator *a, uint32_t job, const json_t *request);
void pool_release(struct accelerator *a, uint32_t job);
bool pool_receive(struct fabric *f, struct accelerator *a, const struct roce_packet *pkt, uint8_t class);
json_t *pool_json(const struct accelerator *a);
void pool_watermarks_clear(struct accelerator *a);
void pool_free(struct accelerator *a);

#endif
