/* Flows as Open vSwitch tells them apart (megaflows.c, megaflow_text.c). */
#ifndef FAST_PATH_MEGAFLOWS_H
#define FAST_PATH_MEGAFLOWS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/lines.h"
#include "fast_path/flow_key.h"
#include "fast_path/ecmp.h"

struct node;
struct fabric;
struct ways;

enum flow_state {
	FLOW_NEW,	/* nothing is known of it */
	FLOW_SHOWN,	/* a frame of it is inside Open vSwitch, which is asked whether the headers alone decide, and which */
	FLOW_ASKED,	/* the frame has come out, and the answer has not */
	FLOW_CACHED,
	FLOW_UNCACHED,	/* they do not: every frame goes through Open vSwitch */
};

/* One copy: where it leaves, and its headers if they are others; of these the flow's mask counts */
struct flow_copy {
	uint16_t port;
	bool rewritten;
	struct flow_key headers;
};

/* A decision about what is alike under a mask; in its first line all that says where a frame of it goes */
struct flow {
	_Alignas(LINE_BYTES) struct flow *next; /* with the same hash */
	struct flow_key key; /* under its mask */
	struct ways *ways; /* the switch takes one of these ports; NULL: all copies leave */
	uint32_t left;	/* frames until one is checked: a twin of it goes through Open vSwitch */
	uint16_t copies;
	uint16_t alone; /* port of the only copy, if its headers stay; or 0 */
	uint16_t mask;	/* its number */
	uint8_t state; /* enum flow_state */
	bool any_port; /* wherever a frame came in, unless it would leave there */
	bool as_it_is; /* headers stay, in the first copy */
	uint64_t packets, bytes; /* that went by the cache, not yet counted for its rules */
	struct flow_copy *copy;
	struct node *sw;
	struct answer *answer; /* that was there before the frame came out, or NULL */
	struct rule **rules;	 /* that it meets, in order */
	uint32_t rule_count;
	uint32_t number;
};

/* flow_is_undecided() - Will it be known soon what becomes of its frames? */
static inline bool flow_is_undecided(const struct flow *flow)
{
	return flow->state == FLOW_SHOWN || flow->state == FLOW_ASKED;
}

/* All bits, of flows that are decided about and of others */
#define MASK_EXACT 0
#define MASK_EXACT_PRESUMED 1
#define MASKS_MIN 2
#define MASK_LIST_MAX 15

struct mask {
	struct flow_key bits;
	struct ecmp ecmp; /* whose link stands for the UDP source port */
	bool presumed; /* of flows that are not decided about */
};

struct mask_list {
	uint16_t count, number[MASK_LIST_MAX];
};

/* Of a switch's flows */
struct flow_masks {
	struct mask_list told, presumed;
	struct mask next; /* that is presumed */
};

/* What Open vSwitch has said of a frame */
struct answer {
	int copies; /* how many there are if headers alone decide, else -1 */
	uint32_t link; /* that the hash has led to */
	struct mask told; /* the bits of the headers that decide, and the hash, if there is one */
	char text[]; /* with the rules that it meets */
};

struct megaflows {
	struct flow **bucket;
	unsigned bucket_bits;
	struct mask *mask; /* by number */
	uint32_t mask_count;
	struct flow_masks *at; /* of each switch */
	struct flow *superseded; /* kept until something is forgotten, as frames may wait for them */
	uint32_t count;
};

void megaflows_open(struct megaflows *m);
struct flow *megaflows_find(const struct megaflows *m, const struct flow_key *key);
struct flow *megaflows_undecided(const struct megaflows *m, const struct flow_key *key);
struct flow *megaflows_new(struct megaflows *m, const struct fabric *f, const struct flow_key *key);
struct flow *megaflows_decided(struct megaflows *m, struct flow *flow, const struct flow_key *key, const struct mask *told);
void megaflows_supersede(struct megaflows *m, struct flow *flow);
void megaflows_forget(struct megaflows *m, const struct node *sw);
void megaflows_each(const struct megaflows *m, void (*act)(struct flow *flow));
void megaflows_close(struct megaflows *m);

void megaflow_mask(struct flow_key *mask, const char *text);

#endif
