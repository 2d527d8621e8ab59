/* Nodes, ports and cables: what frames leave by and come in at (port.c, cable.c).
 *
 * A node is a switch, a NIC, an accelerator or the switch of a scale-up domain.  Its ports queue frames by class, and a cable carries them to a port of
 * another node.
 */
#ifndef LINK_PORT_H
#define LINK_PORT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/lines.h"
#include "base/units.h"
#include "engine/fabric.h"
#include "link/fifo.h"
#include "link/frame.h"
#include "link/params.h"

struct capture;
struct credits;
struct retry;
struct ways;

#define DROP(kind, name, why) DROP_##kind,
enum drop {
#include "link/drops.def"
	DROPS
};
#undef DROP

/* What an operator's counters show of an injected loss, at the port where the frame should have come in */
enum shown {
	SHOWN_SILENT, /* nothing: less has come in than was sent */
	SHOWN_CRC,    /* a frame with a wrong checksum */
	SHOWN_ACL,    /* denied by a rule */
	SHOWN_METER,  /* over a policer's rate */
	SHOWNS
};

#define DROPPED_BYTES 80
struct dropped {
	ps_t at;
	uint32_t len;
	uint8_t data[DROPPED_BYTES];
};

enum node_kind { NODE_SWITCH, NODE_NIC, NODE_ACCELERATOR, NODE_DOMAIN };

/* What a kind of node does at its ports; NULL: nothing */
struct node_ops {
	/* A frame is on its way, and will have come in whole at @t_in */
	void (*announce)(struct fabric *f, struct port *in, struct frame *fr, ps_t t_in);
	void (*receive)(struct fabric *f, struct port *in, struct frame *fr); /* it has come in */
	void (*leaving)(struct fabric *f, struct port *out, struct frame *fr); /* it has left its queue for the cable */
	void (*idle)(struct fabric *f, struct port *p); /* the last bit of a frame has left */
	void (*paused)(struct fabric *f, struct port *p, unsigned class);	/* a class is paused, and may have frames */
	void (*pause_refreshed)(struct fabric *f, struct port *p, unsigned class); /* its XOFF was sent again */
	void (*reconfigured)(struct fabric *f, struct port *p);
	void (*passed)(struct fabric *f, struct passage *passage); /* no copy of a frame is left inside */
};

struct node {
	enum node_kind kind;
	const struct node_ops *ops;
	const struct schedule *schedule; /* NULL: all classes are strict */
	char name[NAME_BYTES];
	uint32_t index; /* over switches, then NICs */
	uint16_t port_count;
	struct port *ports;
	uint64_t made; /* frames */
	bool cuts_through; /* a switch: sends frames on while they still come in */
	bool adaptive; /* a switch: of copies of a frame that are alike it takes one */
	struct ways *ways; /* sets of ports of which it takes one (ways.c) */
	struct ways *ways_newest, *ways_oldest; /* of those that it knows */
	uint32_t ways_known;
};

/* frame_number() - Of a frame that @n makes: by maker and count, so that no other node's frames change what is drawn by it */
static inline uint64_t frame_number(struct node *n)
{
	return (uint64_t)n->index << 40 | ++n->made;
}

struct cable {
	char name[2 * NAME_BYTES];
	struct port *end[2];
	struct port *base_end[2], *wanted[2]; /* as configured; as swaps say */
	struct cable_params base, p;
	bool announced_down;
	int64_t announced_bps; /* the rate that the controller has been told of, or 0: it is as configured */
	uint32_t epoch; /* goes up with every cut: what was on the wire then is lost */
};

/* What came in at one port in one class and occupies the switch's buffer */
struct priority_group {
	uint64_t bytes;	   /* in the reserve and the shared part */
	uint64_t headroom; /* in the headroom: what still came in after XOFF */
	uint64_t max_bytes, headroom_max;
	uint64_t refused; /* room in the shared part that a dropped frame had needed: no XON before there is that much */
	bool xoff;
};

/* PFC and the counts of one traffic class at one port; what every frame meets comes first, likewise below */
struct traffic_class {
	_Alignas(LINE_BYTES) struct priority_group in; /* switches */
	uint64_t queue_max; /* of the port as a way out */
	int64_t deficit;    /* of the scheduler */
	ps_t due, allowed;  /* its shaper: when it has less than its least share, and may send again */
#define COUNTER(field, name, unit, sort, meaning) uint64_t field;
#define VALUE(expression, name, unit, sort, meaning)
#include "link/class.def"
	ps_t paused_since, paused_until, paused_total;
	ps_t watchdog_from;	/* the pause that EV_WATCHDOG looks at began then; PS_NEVER: none is due */
	ps_t pause_seen;	/* the last XOFF */
	uint64_t injected, injected_bytes; /* of the drops: DROP_FAULT, which an operator's counters of queues do not have */
};

struct port {
	_Alignas(LINE_BYTES) struct node *node;
	struct cable *cable;
	struct port *peer;
	ps_t busy_until;
	uint64_t queued_bytes; /* beside what else a switch that takes one of several ports looks at */
	uint16_t number;      /* from 1; a NIC's scale-up port is 2 */
	uint8_t classes_used; /* bit per class with frames */
	uint8_t paused;	      /* by the other end */
	bool free_event;      /* EV_PORT_FREE is due */
	uint8_t dropping, deaf; /* the watchdog drops a class; does not heed its pauses */
	uint8_t scheduled;    /* class whose turn it is */
	bool by_right;	      /* the class that was picked has less than its least share: it is nobody's turn */
	uint32_t frame_faults; /* that look at what leaves here */
	uint32_t owed;	       /* notes, by enum note */
	struct credits *credits; /* NULL: no class is under credits */
	struct retry *retry;	 /* NULL: nothing is sent once more */
	uint32_t ser_len; /* serialization of the last length asked for */
	ps_t ser_ps;
	ps_t arrives; /* the last frame sent, at the far end */
	ps_t came; /* a switch: when the last bit of the last frame that started comes in */
#define COUNTER(field, name, unit, sort, meaning) uint64_t field;
#define VALUE(expression, name, unit, sort, meaning)
#include "link/port.def"
	struct capture *capture;
	uint64_t freed; /* times that credits were freed later */
	uint32_t index;	 /* over all ports of the fabric */
	uint8_t xoff;	      /* we pause the other end */
	struct fifo control;  /* pause frames: go first */
	struct fifo queue[CLASSES];
	struct traffic_class tc[CLASSES]; /* by class */
	struct port_params base, p;
	ps_t pause_end_event; /* the earliest EV_PAUSE_END that is due, or PS_NEVER */
	ps_t refresh_at;	      /* when XOFF is to be sent again */
	bool refresh_event;     /* EV_PAUSE_REFRESH is due, then or before */
	int tap; /* switch: its TAP; -1 otherwise */
	uint32_t tap_pending;
	uint32_t tap_pending_bytes;
	uint64_t drops[DROPS];
	uint64_t shown[SHOWNS]; /* of DROP_FAULT */
	uint64_t cut_off;	/* of DROP_CABLE: on their way here when the cable was cut */
	uint64_t rx_full;	/* of DROP_NO_RECEIVE_BUFFER: the NIC's receive buffer was full */
	struct dropped *last_drop[DROPS];
	int capture_if;
};

/* Each port of a node */
#define PORTS_EACH(n, p) for (struct port *p = (n)->ports; p < (n)->ports + (n)->port_count; p++)

void port_init(struct port *p, struct node *n, uint16_t number);
ps_t port_serialization(struct port *p, uint32_t len);
void port_enqueue(struct fabric *f, struct port *p, struct frame *fr);
void port_became_idle(struct fabric *f, struct port *p);
void port_kick(struct fabric *f, struct port *p);
void port_flush_class(struct fabric *f, struct port *p, unsigned class, enum drop why);
void port_arrive(struct fabric *f, struct port *p, struct frame *fr, uint32_t epoch);
void port_lost(struct fabric *f, struct port *p, const struct frame *fr, enum drop why);
void port_drop(struct fabric *f, struct port *p, struct frame *fr, enum drop why);
void port_cut(struct fabric *f, struct port *p);
const char *drop_name(enum drop why);
const char *shown_name(enum shown as);
bool shown_find(const char *name, enum shown *as);
struct port *fabric_port(struct fabric *f, const char *node, uint32_t number);
struct port *fabric_port_named(struct fabric *f, const char *name);

#endif
