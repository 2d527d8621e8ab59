/* Frames inside Open vSwitch, and those that wait for what it decides (ovs.c, fence.c, hold.c) */
#ifndef SWITCH_OVS_H
#define SWITCH_OVS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/patience.h"
#include "link/port.h"

/* A frame inside Open vSwitch: handed over, not yet settled.  Or one that is held until its flow is decided about */
struct pending {
	struct pending *prev, *next;
	struct frame *frame; /* the original, kept until settled */
	struct port *in;
	ps_t deadline; /* PS_NEVER: a check, for which nobody waits */
	uint64_t number; /* in order of handing over: fences settle all up to one; HELD: it is not handed over */
	uint32_t generation;
	bool in_use, multicast; /* multicast: may come back more than once */
	uint16_t copies;
	struct flow *flow; /* what becomes of it is noted for the fast path, or NULL */
	uint64_t epoch;	   /* of the cache, then */
	struct decision *decision;
	struct frame *came; /* in an adaptive switch: copies, until all are there */
};

/* The twin of a frame that went by the fast path, until there is room for it */
struct check {
	struct frame *twin;
	struct port *in;
	struct flow *flow;
	uint64_t epoch;
};

#define PENDING_MAX 2048 /* handed over; all of them may come out of one TAP */
#define HELD_MAX 14336	 /* with thousands of ranks one frame of each may begin a flow at the same time */
#define SLOTS (PENDING_MAX + HELD_MAX)
#define CHECKS_MAX 1024
#define HELD UINT64_MAX
struct ovs {
	struct pending slot[SLOTS];
	uint16_t free_slot[SLOTS];
	uint32_t free_count;
	struct pending *head, *tail; /* by deadline */
	uint32_t inside, held; /* of them: handed over, and not */
	uint64_t decided; /* of the flow cache, when it was last looked which of these may go on */
	int64_t decided_ns; /* wall time then */
	bool late; /* nothing has been decided for so long that none is held */
	struct check check[CHECKS_MAX]; /* by their numbers */
	uint32_t first_check, next_check;
	uint64_t last_number;
	uint32_t room_bytes; /* what one TAP's reader (OVS) is sure to hold */
	uint32_t nonce;
	int fence_tap;
	int fence_round; /* 0: none under way */
	uint64_t fence_upto, fence_token;
	struct patience patience; /* with the fence under way */
	bool slow;		  /* and said so */
	int64_t settled_ns;	  /* wall time when one was settled last, or the first of them handed over */
	uint64_t fences, flagged, hops, write_errors;
	uint64_t timed; /* of the hops, until last_ns */
	uint64_t unconfirmed; /* times that the controller was not sure that its rules are in force */
	int64_t first_ns, last_ns; /* wall time of the first hand-over, and of the last look at what came out */
	json_t *flagged_examples;
};

struct ovs *ovs_new(void);
bool ovs_open(struct fabric *f, const char *fence_tap);
void ovs_settle(struct fabric *f, struct pending *p);
struct pending *ovs_pend(struct fabric *f, struct port *in, struct frame *fr, ps_t deadline, struct flow *flow);
void ovs_take_out(struct ovs *o, struct pending *p);
void ovs_hand_over(struct fabric *f, struct frame *fr);
void ovs_readable(struct fabric *f, struct port *out);
void ovs_fence_readable(struct fabric *f);
void ovs_fence_start(struct fabric *f);
bool ovs_room(const struct fabric *f, const struct port *in);
void ovs_spared(struct fabric *f, struct port *in, struct frame *fr, struct flow *flow);
bool ovs_hold(struct fabric *f, struct frame *fr, ps_t deadline);
void ovs_let_go(struct fabric *f);
void ovs_stepped(struct fabric *f);
void ovs_tick(struct fabric *f);
void ovs_close(struct fabric *f);

/* ovs_checks_late() - Do so many checks wait for room that the clock has to wait for them? */
static inline bool ovs_checks_late(const struct ovs *o)
{
	return o->next_check - o->first_check >= CHECKS_MAX - CHECKS_MAX / 8;
}

#endif
