/* While an event runs, what the next ones will look at is brought near
 *
 * In a large fabric two events have nothing in common: the next one's frame and port were looked at so long ago that
 * they are in no cache, and to wait for their memory would take longer than all else.  What is asked for in vain changes
 * nothing.
 *
 * Which events are next the heap says, and of each lane (engine/event.c) what stands in it.  Of a lane something is asked
 * for with each event that is taken out of it: far behind, the entry itself; nearer, the frame or port that it names;
 * nearer still, what is found in those; and so on.  So nobody waits for the address of what is to be asked for.
 */
#ifndef NEAR_H
#define NEAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/lines.h"
#include "engine/event.h"
#include "engine/fabric.h"
#include "link/port.h"
#include "nic/nic.h"
#include "transport/qp.h"

#if defined(__SANITIZE_ADDRESS__)
#define NEAR_CROWD 1 /* so that every test looks at it */
#else
#define NEAR_CROWD 512 /* with fewer events than that what belongs to them is in a cache anyway */
#endif
#define NEAR_FRAME_LINES 4 /* up to its headers */
#define NEAR_PORT_LINES 3

/* Ask for the fields of an object from one to another; nothing has to be there.  How many lines that are is known
 * beforehand of one that begins with a line
 */
#define NEAR_END(type, last) (offsetof(type, last) + sizeof(((type *)0)->last))
#define NEAR_FIELDS(at, type, first, last)                                                                            \
	(_Alignof(type) % LINE_BYTES                                                                                  \
		 ? near_bytes((uintptr_t)(at) + offsetof(type, first), (uintptr_t)(at) + NEAR_END(type, last))        \
		 : lines_near((const char *)(at) + offsetof(type, first) / LINE_BYTES * LINE_BYTES,                   \
			      (int)((NEAR_END(type, last) - 1) / LINE_BYTES - offsetof(type, first) / LINE_BYTES + 1)))

static inline void near_bytes(uintptr_t from, uintptr_t end)
{
	for (from -= from % LINE_BYTES; from < end; from += LINE_BYTES)
		line_near((const void *)from);
}

/* Events that come with every frame, with the frame or port that they are of */
static inline bool near_frames(enum event_kind kind)
{
	return kind == EV_FETCHED || kind == EV_ARRIVE || kind == EV_FORWARD;
}

static inline void near_object(const struct fabric *f, const struct queued *q)
{
	enum event_kind kind = event_kind(&q->e);

	if (near_frames(kind) || kind == EV_PORT_FREE)
		lines_near(q->e.a, NEAR_FRAME_LINES);
	if (near_frames(kind))
		NEAR_FIELDS(f->nodes[event_node(&q->e)], struct node, kind, ports);
}

/* What of a port and of its class every frame meets */
static inline void near_class(const struct port *p, unsigned class)
{
	lines_near(p, NEAR_PORT_LINES);
	NEAR_FIELDS(&p->tc[class], struct traffic_class, in, rx_bytes);
}

static inline void near_port(const struct fabric *f, const struct queued *q)
{
	enum event_kind kind = event_kind(&q->e);
	const struct frame *fr = q->e.a;

	if (kind == EV_PORT_FREE) {
		const struct port *p = q->e.a;
		if (p->classes_used)
			lines_near(p->queue[__builtin_ctz(p->classes_used)].head, NEAR_FRAME_LINES);
		return;
	}
	if (!near_frames(kind))
		return;
	const struct node *node = f->nodes[event_node(&q->e)];
	uint32_t number = kind == EV_FETCHED ? event_port(&q->e) + 1 : kind == EV_FORWARD ? event_other(&q->e) : event_port(&q->e);
	if (number)
		near_class(&node->ports[number - 1], fr->class);
	if (fr->passage)
		lines_near(fr->passage, 1);
	if (node->kind != NODE_NIC)
		return;
	NEAR_FIELDS(node, struct nic, tx, ip);
	NEAR_FIELDS(node, struct nic, p, rx_rdma);
}

static inline void near_sender(const struct frame *fr)
{
	if (!fr->from)
		return;
	NEAR_FIELDS(fr->from, struct qp, source, cnps);
	NEAR_FIELDS(fr->from, struct qp, cc_state, cc_state);
	lines_near((const struct qp *)fr->from + 1, 2); /* its control's own */
}

static inline void near_users(const struct fabric *f, const struct queued *q)
{
	enum event_kind kind = event_kind(&q->e);
	const struct frame *fr = q->e.a;

	if (kind == EV_FETCHED) {
		near_sender(fr);
	} else if (kind == EV_ARRIVE && f->nodes[event_node(&q->e)]->kind == NODE_NIC) {
		NEAR_FIELDS(fr->taker, struct qp, source, send);
		NEAR_FIELDS(fr->taker, struct qp, rq, reorder);
		lines_near(((const struct nic *)f->nodes[event_node(&q->e)])->qps, 1);
	} else if (kind == EV_FORWARD && !event_other(&q->e)) { /* to one of several ports */
		lines_near((const void *)(uintptr_t)q->e.b, 3);
		if (fr->passage)
			near_class(fr->passage->in, fr->class);
	} else if (kind == EV_FORWARD) {
		const struct port *p = &f->nodes[event_node(&q->e)]->ports[event_other(&q->e) - 1];
		NEAR_FIELDS(p->cable, struct cable, p, epoch);
		lines_near(p->peer, 2);
		if (fr->passage)
			near_class(fr->passage->in, fr->class);
	} else if (kind == EV_PORT_FREE) {
		const struct port *p = q->e.a;
		if (p->classes_used && p->node->kind == NODE_NIC)
			near_sender(p->queue[__builtin_ctz(p->classes_used)].head);
	}
}

/* near_what_is_next() - Ask for it; the event that runs has been taken out: of the second behind it in its lane what is found
 * in what it names, of the third what it names, of the fifth its frame, of the sixth its successor
 */
static inline void near_what_is_next(const struct fabric *f, const struct heap *h)
{
	const struct queued *q = h->behind;

	if (h->n < NEAR_CROWD || !q || !(q = q->next))
		return;
	near_users(f, q);
	if (!(q = q->next))
		return;
	near_port(f, q);
	if (!(q = q->next) || !(q = q->next))
		return;
	near_object(f, q);
	if (q->next)
		line_near(q->next->next);
}

#endif
