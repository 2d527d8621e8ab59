/* Sets of ports of which a switch takes one for each frame (ways.c). */
#ifndef LINK_WAYS_H
#define LINK_WAYS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/units.h"

struct fabric;
struct node;

#define WAYS_KNOWN 1024 /* of a node: sets of which a frame has taken a port */
#define WAYS_MAX 128 /* copies that Open vSwitch makes of a frame: ports, as often as they weigh */

struct pick_policy;

/* What a policy of a user's own remembers, while it is that one (switch/own.c) */
struct pick_memory {
	const struct pick_policy *of; /* NULL: nothing */
	void *state;
};

struct way {
	uint16_t port, weight;
	uint16_t whole;	/* which of the whole set it is */
	ps_t busy_until; /* what lies behind its port, as far as is known here (switch/adaptive.c) */
	uint64_t next; /* it has its share of what the set is given when that has come so far */
	uint64_t picks; /* of the whole set */
};

struct ways {
	struct node *node;
	struct ways *next; /* of the node */
	struct ways *newer, *older; /* of the known ones, by when a frame last took one of its ports */
	bool known;
	uint32_t named; /* by flows, and by frames that are about to take one of its ports */
	struct ways *whole; /* of which it is what is up; itself: all of it */
	struct ways *alive; /* what is left of it without ports whose cable is down, as of `wiring`; or NULL */
	uint64_t wiring;
	struct pick_memory memory;
	uint64_t turn; /* frames that were spread in turn */
	uint64_t given; /* bytes */
	uint16_t count;	/* ports */
	uint16_t copies; /* their weights, summed */
	uint16_t heaviest; /* the way that weighs most, or one of those */
	uint8_t order[WAYS_MAX]; /* each way as often as it weighs, those of one way as far apart as can be */
	struct way way[];
};

struct ways *ways_of(struct node *n, const uint16_t *ports, uint16_t copies);
struct ways *ways_name(struct ways *w);
void ways_drop(struct ways *w);
void ways_taken(struct ways *w);
void ways_rest(struct ways *w);
struct ways *ways_alive(struct fabric *f, struct node *n, struct ways *w);
struct way *ways_find(struct ways *w, uint16_t port);
void ways_free(struct node *n);

#endif
