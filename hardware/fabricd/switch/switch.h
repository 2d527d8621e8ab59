/* Switches: pipeline, packet buffer, trimming, marking, watchdog (switch.c, buffer.c, trim.c, ecn.c, watchdog.c, deadlock.c).
 *
 * Where a frame leaves a switch, Open vSwitch says (ovs.h).
 */
#ifndef SWITCH_SWITCH_H
#define SWITCH_SWITCH_H

#include <stdbool.h>
#include <stdint.h>

#include "link/port.h"
#include "switch/params.h"

struct accelerator;
struct adaptive;
struct ways;

struct sw {
	struct node n;
	ps_t latency;
	struct switch_params base, p;
	uint64_t set_aside; /* of the buffer: reserves and headrooms of all groups in use */
	uint32_t refusing;  /* groups that have refused a frame and not sent XON since */
	uint64_t shared;    /* of the rest: occupied */
	uint64_t used;
#define COUNTER(field, name, unit, sort, meaning) uint64_t field;
#define VALUE(expression, name, unit, sort, meaning)
#include "switch/counters.def"
	bool deadlock_reported;
	struct accelerator *accelerator; /* on its last port, or NULL */
	struct adaptive *adaptive;	 /* NULL: it takes no port of several */
};

extern const struct node_ops switch_ops;
void switch_decide(struct fabric *f, struct frame *fr);
void switch_forward(struct fabric *f, struct port *out, struct frame *fr);
void switch_leave(struct fabric *f, struct sw *s, uint32_t port, struct ways *ways, struct frame *fr);
void switch_forwarding_drop(struct fabric *f, struct frame *fr);

void adaptive_init(struct sw *s);

uint8_t buffer_class(const struct sw *s, const struct frame *fr);
void buffer_changed(struct fabric *f, struct sw *s);
bool buffer_admit(struct fabric *f, struct sw *s, struct passage *passage, enum drop *why);
void buffer_release(struct fabric *f, struct sw *s, struct passage *passage);
uint64_t buffer_threshold(const struct sw *s);
bool buffer_queue_full(const struct sw *s, const struct port *out, unsigned class, uint32_t bytes);

void buffer_shrink(struct fabric *f, struct sw *s, struct passage *passage, uint32_t bytes);

bool trim_admit(struct fabric *f, struct sw *s, struct frame *fr);
bool trim_forward(struct fabric *f, struct port *out, struct frame *fr);

void ecn_dequeued(struct fabric *f, struct port *p, unsigned class, struct frame *fr);

void switch_stamp(struct fabric *f, const struct port *p, unsigned class, struct frame *fr);

void watchdog_paused(struct fabric *f, struct port *p, unsigned class);
void watchdog_look(struct fabric *f, struct port *p, unsigned class);
void watchdog_changed(struct fabric *f, struct sw *s);
void deadlock_look(struct fabric *f, struct port *p, unsigned class);

#endif
