/* Events: what happens, when and where, in one order that follows from the fabric alone (event.c).
 *
 * Every kind of event has a place in `enum event_kind`, because kinds that meet at one time run in that order.  What a
 * kind does is not known here: loop.c has the table.
 */
#ifndef ENGINE_EVENT_H
#define ENGINE_EVENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/lines.h"
#include "base/units.h"

struct fabric;

enum event_kind {
	EV_FAULT_NOW, /* a fault that was just injected goes on: a = struct fault, b = on */
	EV_FAULT,     /* a fault goes on or off in its time: likewise */
	EV_TRAFFIC,   /* a generated flow starts: a = struct generated */
	EV_CABLE,     /* a cable changes: a = struct change */
	EV_ANNOUNCE,  /* the controller is told: a = struct change */
	EV_GROUP_LEFT, /* a member has left its group: a = struct member */
	EV_GROUP,     /* all members of a group have called: a = struct group */
	EV_GROUP_OPEN, /* it is open, or refused: likewise */
	EV_DOORBELL,  /* a worker's post reaches its NIC: a = struct post */
	EV_FETCHED,   /* payload fetched over PCIe: a = frame, b = 1 for the scale-up port */
	EV_HAND_OVER, /* Open vSwitch gets a frame that has just left for a switch: a = frame */
	EV_PORT_FREE, /* the last bit has left: a = port */
	EV_PAUSE_END, /* a pause may have run out: a = port */
	EV_PAUSE_REFRESH, /* a port that has sent XOFF sends it again: a = port */
	EV_ARRIVE,    /* the last bit has come in: a = frame, b = cable epoch */
	EV_PAUSE_ARRIVE, /* of a pause frame, likewise */
	EV_DAMAGED, /* a frame that will be sent once more came in damaged: a = port, b = cable epoch */
	EV_NOTE, /* a note has come in: a = port, b = what it says */
	EV_CREDITS_FREE, /* room of a class is free: a = port, b = blocks */
	EV_CREDITS, /* a look at a port with credits: a = port */
	EV_FORWARD,   /* out of a switch's pipeline: a = frame; b = ports of which it takes one, if none is said */
	EV_FORWARDING_DROP,    /* nothing came out of it for this one: a = frame */
	EV_DELIVER,   /* out of the scale-up domain: a = frame */
	EV_WATCHDOG,  /* a look at a queue that was paused: a = port, b = class */
	EV_QP_TIMER,  /* a = qp */
	EV_QP_SEND,   /* the pacer looks at a queue pair again: a = qp */
	EV_PULL,      /* a NIC gives credit to the next sender: a = nic */
	EV_OFFLOAD,   /* what an offload has set for itself: a = its nic, b = group */
	EV_RX_DRAINED, /* a NIC's receive buffer may have room: a = nic */
	EV_RECV_USABLE, /* a slow receiver's receives become usable: a = qp, b = how many */
	EV_WAKE,      /* a = worker; last of its time, so that all completions of that time are in */
	EVENT_KINDS
};

struct event {
	ps_t t;
	uint64_t key; /* kind << 56 | node << 32 | port << 16 | other port */
	uint64_t seq; /* frame id, post number .. */
	void *a;
	uint64_t b;
};

struct lane;

/* An event that has been entered */
struct queued {
	_Alignas(LINE_BYTES) struct event e;
	struct queued *next; /* in its lane, or free */
	uint32_t lane;
};

/* The first event of a lane, or one by itself, as the heap has it */
struct heap_entry {
	ps_t t;
	uint64_t key;
	struct queued *q;
	void *a;
};

struct heap {
	struct heap_entry *at; /* two that have the same parent share a cache line */
	size_t entries, room; /* the one that is missing counted */
	bool gap; /* the first entry is taken out, and its place not filled yet */
	struct lane *lanes;
	struct queued *free;
	const struct queued *behind; /* what stood in its lane behind the event that was taken out last, or NULL */
	void **slabs;
	size_t slab_count;
	size_t n; /* events, in the heap and in lanes */
	size_t background; /* pauses and faults that come and go: alone, they lead to nothing */
	ps_t latest; /* of all others that there were */
};

void event_add(struct fabric *f, ps_t t, enum event_kind kind, uint32_t node, uint32_t port, uint32_t other,
	       uint64_t seq, void *a, uint64_t b);
void event_forget(struct fabric *f, bool (*over)(struct event *e, void *context), void *context);
const struct event *event_first(struct heap *h);
const struct event *event_next(struct fabric *f, struct heap **from);
bool events_idle(const struct fabric *f);
ps_t events_latest(const struct fabric *f);
bool event_pop(struct heap *h, struct event *e);
void events_free(struct heap *h);

static inline enum event_kind event_kind(const struct event *e)
{
	return (enum event_kind)(e->key >> 56);
}

/* Does it concern all of the fabric, and not a node alone? */
static inline bool event_of_all(enum event_kind kind)
{
	return kind < EV_DOORBELL || kind == EV_CREDITS;
}

/* Where: indexes of the node, of its port, and of a second port */
static inline uint32_t event_node(const struct event *e)
{
	return (uint32_t)(e->key >> 32) & 0xffffff;
}

static inline uint32_t event_port(const struct event *e)
{
	return (uint32_t)(e->key >> 16) & 0xffff;
}

static inline uint32_t event_other(const struct event *e)
{
	return (uint32_t)e->key & 0xffff;
}

#endif
