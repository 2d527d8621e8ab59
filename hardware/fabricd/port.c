/* Ports and cables
 *
 * Theory of Operation
 *
 * A port has one queue per class and serves the highest class first.  A frame
 * occupies the cable for (frame + FCS + preamble and gap) at the cable's rate
 * and arrives, last bit, a cable delay later: store and forward.  A port that
 * runs empty leaves no event behind; the next frame looks at busy_until.
 *
 * A switch's queues share its buffer and drop at the tail when it is full.  A
 * NIC's queues are bounded by its transmit buffer (nic.c), which is told as
 * soon as a frame leaves for the wire.
 *
 * The scale-up port of a NIC is a port whose far end is picked frame by frame.
 */
#include <stdlib.h>
#include <string.h>

#include "fabric.h"
#include "roce.h"

#define MIN_FRAME_BYTES 64 /* with FCS */

static const char *const drop_names[DROPS] = {
	[DROP_TAIL] = "tail",	[DROP_FORWARDING] = "forwarding", [DROP_CABLE] = "cable",
	[DROP_ICRC] = "icrc",	[DROP_NO_QP] = "no_qp",		  [DROP_MALFORMED] = "malformed",
};

const char *drop_name(enum drop why)
{
	return drop_names[why];
}

/* wire_bytes() - What a frame of @len bytes (without FCS) occupies on a cable */
uint32_t wire_bytes(uint32_t len)
{
	uint32_t frame = len + FCS_BYTES;

	return (frame < MIN_FRAME_BYTES ? MIN_FRAME_BYTES : frame) + GAP_BYTES;
}

/* port_serialization() - Time that a frame of @len bytes takes on the port's cable */
ps_t port_serialization(struct port *p, uint32_t len)
{
	if (p->ser_len != len) {
		p->ser_len = len;
		p->ser_ps = ((ps_t)wire_bytes(len) * 8 * PS_PER_S + p->cable->rate_bps / 2) / p->cable->rate_bps;
	}
	return p->ser_ps;
}

static void credit_back(struct fabric *f, struct frame *fr)
{
	struct tx *tx = fr->credit;

	if (!tx)
		return;
	fr->credit = NULL;
	tx->used_bytes -= fr->len;
	nic_tx_kick(f, tx);
}

/* port_drop() - Count a frame as lost at a port, keep its headers, free it */
void port_drop(struct fabric *f, struct port *p, struct frame *fr, enum drop why)
{
	struct dropped *last = p->last_drop[why];

	p->drops[why]++;
	if (!last) {
		last = p->last_drop[why] = malloc(sizeof *last);
		if (!last)
			abort();
	}
	last->len = fr->len;
	memcpy(last->data, fr->data, fr->len < DROPPED_BYTES ? fr->len : DROPPED_BYTES);
	if (why == DROP_FORWARDING && p->drops[why] == 1) {
		char text[256];
		frame_describe(fr->data, fr->len, fr->len, text, sizeof text);
		control_event(f, "forwarding_drop",
			      json_pack("{s:s, s:i, s:s}", "switch", p->node->name, "port", p->number, "headers", text));
	}
	credit_back(f, fr);
	frame_free(f, fr);
}

static struct frame *fifo_pop(struct port *p)
{
	unsigned class = 31 - (unsigned)__builtin_clz(p->classes_used);
	struct fifo *q = &p->queue[class];
	struct frame *fr = q->head;

	q->head = fr->next;
	q->frames--;
	q->bytes -= fr->len;
	p->queued_bytes -= fr->len;
	if (!q->head) {
		q->tail = NULL;
		p->classes_used &= (uint8_t)~(1u << class);
	}
	if (p->node->kind == NODE_SWITCH)
		((struct sw *)p->node)->used -= fr->len;
	return fr;
}

static void port_start(struct fabric *f, struct port *p)
{
	struct frame *fr = fifo_pop(p);
	struct port *to = p->peer ? p->peer : &fr->to->port[1];

	p->busy_until = f->clock.now + port_serialization(p, fr->len);
	p->tx_frames++;
	p->tx_bytes += fr->len + FCS_BYTES;
	if (p->capture)
		capture_frame(f, p, fr->data, fr->len, true);
	ps_t arrives = p->busy_until + p->cable->delay;
	if (arrives < p->arrives)
		arrives = p->arrives; /* the cable has become shorter; nothing overtakes on it all the same */
	p->arrives = arrives;
	event_add(f, arrives, EV_ARRIVE, to->node->index, to->number, 0, fr->id, fr, p->cable->epoch);
	if (to->node->kind == NODE_SWITCH) {
		fr->in = to;
		fr->t_in = arrives;
		fr->users = 2;
		if (ovs_room(f, to))
			ovs_hand_over(f, fr);
		else
			event_add(f, f->clock.now, EV_HAND_OVER, to->node->index, to->number, 0, fr->id, fr, 0);
	}
	if (p->classes_used && !p->free_event) {
		p->free_event = true;
		event_add(f, p->busy_until, EV_PORT_FREE, p->node->index, p->number, 0, 0, p, 0);
	}
	credit_back(f, fr);
}

/* port_enqueue() - Offer a frame to a port's egress queue
 *
 * The frame belongs to the port from here on; it may be dropped.
 */
void port_enqueue(struct fabric *f, struct port *p, struct frame *fr)
{
	struct fifo *q = &p->queue[fr->class];

	if (!p->cable || !p->cable->up) {
		port_drop(f, p, fr, DROP_CABLE);
		return;
	}
	if (p->node->kind == NODE_SWITCH) {
		struct sw *s = (struct sw *)p->node;
		if (s->used + fr->len > s->buffer_bytes) {
			port_drop(f, p, fr, DROP_TAIL);
			return;
		}
		s->used += fr->len;
		if (s->used > s->used_max)
			s->used_max = s->used;
	}
	fr->next = NULL;
	if (q->tail)
		q->tail->next = fr;
	else
		q->head = fr;
	q->tail = fr;
	q->frames++;
	q->bytes += fr->len;
	p->classes_used |= (uint8_t)(1u << fr->class);
	p->queued_bytes += fr->len;
	if (p->queued_bytes > p->queued_max)
		p->queued_max = p->queued_bytes;
	if (p->free_event)
		return;
	if (f->clock.now >= p->busy_until) {
		port_start(f, p);
	} else {
		p->free_event = true;
		event_add(f, p->busy_until, EV_PORT_FREE, p->node->index, p->number, 0, 0, p, 0);
	}
}

/* port_free() - The last bit has left: start the next frame, if any */
void port_free(struct fabric *f, struct port *p)
{
	p->free_event = false;
	if (p->classes_used)
		port_start(f, p);
	if (p->node->kind == NODE_NIC)
		nic_netdev_resume(f, (struct nic *)p->node);
}

/* port_arrive() - A frame's last bit has come in
 * @epoch:	The cable's when the frame was sent: a cut since then lost it
 */
void port_arrive(struct fabric *f, struct port *p, struct frame *fr, uint32_t epoch)
{
	if (epoch != p->cable->epoch) {
		port_drop(f, p, fr, DROP_CABLE);
		return;
	}
	p->rx_frames++;
	p->rx_bytes += fr->len + FCS_BYTES;
	if (p->capture)
		capture_frame(f, p, fr->data, fr->len, false);
	if (p->node->kind == NODE_SWITCH)
		switch_ingress(f, p, fr);
	else if (p->number == 2)
		scale_up_arrive(f, fr);
	else
		nic_receive(f, (struct nic *)p->node, fr, false);
}

static void port_flush(struct fabric *f, struct port *p)
{
	while (p->classes_used)
		port_drop(f, p, fifo_pop(p), DROP_CABLE);
}

/* change_new() - A change that may be scheduled: kept until the fabric ends, as events point to it */
struct change *change_new(struct fabric *f, const struct change *what)
{
	struct change *c = malloc(sizeof *c);

	if (!c)
		abort();
	*c = *what;
	c->next = f->changes;
	f->changes = c;
	f->last_change++;
	return c;
}

/* cable_apply() - Carry out a change of a cable, now
 *
 * When it goes up or down and ends at a switch, the controller is told
 * control.reaction later.
 */
void cable_apply(struct fabric *f, struct change *c)
{
	struct cable *cable = c->cable;

	if (c->rate_bps)
		cable->rate_bps = c->rate_bps;
	if (c->delay >= 0)
		cable->delay = c->delay;
	for (int i = 0; i < 2; i++)
		cable->end[i]->ser_len = 0;
	if (!c->set_up || c->up == cable->up)
		return;
	cable->up = c->up;
	cable->epoch++;
	ovs_cable_cut(f, cable);
	if (!c->up)
		for (int i = 0; i < 2; i++)
			port_flush(f, cable->end[i]);
	event_add(f, f->clock.now + f->reaction, EV_ANNOUNCE, 0, 0, 0, ++f->last_change, c, 0);
}

static json_t *port_event(struct fabric *f, const struct port *p, bool up)
{
	return json_pack("{s:I, s:s, s:i, s:b}", "id", (json_int_t)++f->last_port_event, "switch", p->node->name, "port",
			 p->number, "up", up);
}

/* cables_down_say() - Tell a controller that has just come which ports are known to be down */
void cables_down_say(struct fabric *f, struct control_conn *c)
{
	for (uint32_t k = 0; k < f->cable_count; k++)
		for (int i = 0; f->cables[k].announced_down && i < 2; i++) {
			const struct port *p = f->cables[k].end[i];
			if (p->node->kind != NODE_SWITCH)
				continue;
			json_t *o = port_event(f, p, false);
			json_object_set_new(o, "event", json_string("port"));
			json_object_set_new(o, "time_ns", ns_json(f->clock.now));
			control_send(f, c, o);
		}
}

/* cable_announce() - Tell the controller that a cable's ports went up or down
 *
 * With the virtual clock, time then stands still until it says that its rules
 * are in, so that they take effect at the same emulated time in every run.
 */
void cable_announce(struct fabric *f, struct change *c)
{
	bool settles = false;
	struct clock *clock = &f->clock;

	c->cable->announced_down = !c->up;
	for (struct control_conn *k = f->conns; k; k = k->next)
		settles = settles || (k->settles && !k->closing);
	for (int i = 0; i < 2; i++) {
		struct port *p = c->cable->end[i];
		if (p->node->kind != NODE_SWITCH)
			continue;
		control_event(f, "port", port_event(f, p, c->up));
		if (settles && f->clock.mode == CLOCK_VIRTUAL) {
			clock->hold = clock->now;
			clock->held[clock->hold_left++] = f->last_port_event;
			clock->hold_wall_ns = wall_ns();
		}
	}
}
