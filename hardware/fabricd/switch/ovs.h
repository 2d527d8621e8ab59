/* Frames inside Open vSwitch (ovs.c, fence.c) */
#ifndef SWITCH_OVS_H
#define SWITCH_OVS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/patience.h"
#include "link/port.h"

/* A frame inside Open vSwitch: handed over, not yet settled */
struct pending {
	struct pending *prev, *next;
	struct frame *frame; /* the original, kept until settled */
	struct port *in;
	ps_t deadline;
	uint64_t number; /* in order of handing over: fences settle all up to one */
	uint32_t generation;
	uint16_t slot;
	bool in_use, multicast; /* multicast: may come back more than once */
	uint16_t copies;
	struct flow *flow; /* what becomes of it is noted for the fast path, or NULL */
	uint64_t epoch;	   /* of the cache, then */
	struct decision *decision;
};

#define PENDING_MAX 2048
struct ovs {
	struct pending slot[PENDING_MAX];
	uint16_t free_slot[PENDING_MAX];
	uint32_t free_count;
	struct pending *head, *tail; /* by deadline */
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
void ovs_hand_over(struct fabric *f, struct frame *fr);
void ovs_readable(struct fabric *f, struct port *out);
void ovs_fence_readable(struct fabric *f);
void ovs_fence_start(struct fabric *f);
bool ovs_room(const struct fabric *f, const struct port *in);
void ovs_spared(struct fabric *f);
void ovs_stepped(struct fabric *f);
void ovs_tick(struct fabric *f);
void ovs_close(struct fabric *f);

#endif
