/* The pacer: when a queue pair's packets may leave the NIC
 *
 * Theory of Operation
 *
 * Pacing stands behind the fetch, at the cable: so a change of rate takes effect with the
 * very next frame.  A frame that has been fetched joins its port's queue.  When the port
 * would send it, the pacer may defer it: the rate of its queue pair does not allow it yet,
 * or an older frame of that queue pair is deferred.  It then goes into `pacer_queue`, and
 * the port takes its next frame.
 *
 * When the queue pair may send (EV_QP_SEND), its oldest deferred frame joins the port's
 * queue again (`due`), one at a time, before those that joined it meanwhile; if the rate
 * is cut, it is deferred again.  While its class is paused, it waits in the port's queue
 * like any other frame.
 *
 * next_send is the start of the last frame plus the time that it takes at the rate.  A frame
 * that was due while the cable carried others' counts from when it was due: otherwise every
 * gap would grow to whole frames of others.  When the rate changes, what is left of the gap
 * is scaled by old rate / new rate.  Timers of a control are not events (congestion.h): so
 * while frames are deferred, the pacer also looks when the control's timer lets the rate grow.
 *
 * Deferred frames take no room of the transmit buffer (tx.used_bytes), so a slow queue
 * pair does not stop the fetches of others.  A paced queue pair fetches nothing more while
 * what it has in the NIC lasts, at its rate, for a fetch, and for all that is queued before
 * its next packet.  To the latter two packets are added: one that waits for its time and one
 * for its turn.  So it gets its rate, or its turns, however full the buffer is.  One packet
 * it may always have.  After a cut it may have more: what was fetched at the rate before.
 */
#include "base/units.h"
#include "engine/event.h"
#include "engine/fabric.h"
#include "link/frame.h"
#include "link/port.h"
#include "nic/nic.h"
#include "transport/congestion.h"
#include "transport/pacer.h"
#include "transport/qp.h"
#include "transport/reads.h"
#include "transport/repeat.h"
#include "transport/responder.h"
#include "wire/roce.h"
#include "wire/telemetry.h"

static bool paced(const struct qp *q)
{
	return q->cc_state.rate < q->cc_state.line_rate;
}

static bool may_go(const struct fabric *f, const struct qp *q)
{
	return !paced(q) || f->clock.now >= q->next_send;
}

/* Look again when the oldest frame that is deferred may go, or its rate grows before that */
static void look_later(struct fabric *f, struct qp *q)
{
	ps_t t = q->next_send < q->cc_state.rate_timer ? q->next_send : q->cc_state.rate_timer;

	if (!q->pacer_queue.head || q->due)
		return;
	t = may_go(f, q) || t < f->clock.now ? f->clock.now : t;
	if (t >= q->pace_event)
		return;
	q->pace_event = t;
	event_add(f, t, EV_QP_SEND, q->nic->n.index, 0, 0, q->number, q, 0);
}

/* Put a frame aside */
static void defer(struct qp *q, struct frame *fr)
{
	if (fr == q->due)
		q->due = NULL;
	fifo_add(&q->pacer_queue, fr); /* `due` is early: before all others, which are younger */
	tx_of(fr)->used_bytes -= fr->len;
}

static struct frame *take(struct qp *q)
{
	struct frame *fr = fifo_take(&q->pacer_queue);

	tx_of(fr)->used_bytes += fr->len;
	return fr;
}

/* pacer_passes() - A port would send a frame now: may it go?  If not, it is deferred */
bool pacer_passes(struct fabric *f, struct frame *fr)
{
	struct qp *q = (struct qp *)fr->from;

	cc_catch_up(f, q);
	if ((q->due ? fr == q->due : !q->pacer_queue.head) && may_go(f, q))
		return true;
	defer(q, fr);
	look_later(f, q);
	nic_tx_kick(f, q->tx);
	return false;
}

/* pacer_kick() - The rate may be another: what is deferred may be due */
void pacer_kick(struct fabric *f, struct qp *q)
{
	if (!q->pacer_queue.head || q->due)
		return;
	cc_catch_up(f, q);
	if (!may_go(f, q)) {
		look_later(f, q);
		return;
	}
	struct port *p = q->tx->port;
	q->due = take(q);
	q->due->early = true;
	q->due_pauses = p->paused >> q->due->class & 1 ? UINT64_MAX : p->tc[q->due->class].pauses;
	port_enqueue(f, p, q->due);
}

/* pacer_event() - An EV_QP_SEND of time @t has come */
void pacer_event(struct fabric *f, struct qp *q, ps_t t)
{
	if (t == q->pace_event)
		q->pace_event = PS_NEVER;
	pacer_kick(f, q);
}

/* Share of the cable's rate times what is before the next packet, where not all of that is the queue pair's own */
static double queued(const struct qp *q)
{
	uint64_t own = q->fetched_bytes - q->pacer_queue.bytes, all = q->tx->used_bytes;

	return all > own ? q->cc_state.rate / q->cc_state.line_rate * (double)all + 2.0 * q->mtu : 0;
}

/* pacer_full() - Is enough fetched for a queue pair at its rate? */
bool pacer_full(const struct fabric *f, const struct qp *q)
{
	if (!paced(q) && !q->pacer_queue.head && !q->due)
		return false;
	ps_t fetch = pcie_read_time(q->nic, f->clock.now, q->mtu);
	double enough = q->cc_state.rate / 8 * (double)fetch / (double)PS_PER_S, beside = queued(q);
	return (double)q->fetched_bytes > (enough > beside ? enough : beside);
}

/* qp_slow() - Would the timer run out before every ack_every-th packet has left? */
bool qp_slow(const struct qp *q, uint32_t frame_bytes)
{
	const struct cc_state *s = &q->cc_state;
	const struct nic_params *p = q->p;

	return s->rate < s->line_rate && (double)wire_bytes(frame_bytes) * 8e12 / s->rate * p->ack_every > (double)p->timeout / 4;
}

/* A round trip's last packet, and each one of a slow queue pair, asks to be acknowledged: known only now */
static void ask(struct qp *q, struct frame *fr)
{
	struct cc_state *s = &q->cc_state;
	uint64_t number = fr->response ? qp_all_left(q) : fr->number + q->responses_left;
	bool round = q->cc->rounds && number >= s->window_end && s->asked <= s->window_end;

	if (!fr->asks && (round || qp_slow(q, fr->len))) {
		fr->asks = true;
		roce_ask(fr->data);
		if (!fr->unsealed)
			roce_seal(fr->data);
	}
	if (!fr->asks)
		return;
	if (s->asked <= number)
		s->asked = number + 1;
	if (fr->response)
		return;
	if (q->asked <= fr->number)
		q->asked = fr->number + 1;
	if (q->left_asked <= fr->number)
		q->left_asked = fr->number + 1;
}

/* How late a frame starts because the cable was taken by others when it was due: its pace goes on from that time */
static ps_t held_up(const struct fabric *f, const struct qp *q, const struct frame *fr)
{
	bool by_frames = fr == q->due && q->due_pauses == q->tx->port->tc[fr->class].pauses && f->clock.now > q->next_send;

	return by_frames ? f->clock.now - q->next_send : 0;
}

/* A packet of its own leaves, and not a response */
static void own_left(struct fabric *f, struct qp *q, const struct frame *fr)
{
	uint64_t behind = reads_behind(q, fr->number);
	if (fr->asks && q->left_asked < behind) {
		q->left_asked = behind;
		q->cc_state.asked = behind + q->responses_left;
	}
	if (q->p->selective) {
		for (uint64_t n = fr->number; n < (fr->number < q->left ? fr->number + 1 : behind); n++)
			repeat_left(f, q, n);
		timer_look(f, q);
	}
	if (fr->number < q->left) {
		q->retransmitted++;
		q->nic->retransmitted++;
	} else {
		q->left = behind;
	}
}

/* pacer_sent() - A frame of a queue pair starts on the cable */
void pacer_sent(struct fabric *f, struct frame *fr)
{
	struct qp *q = (struct qp *)fr->from;

	fr->early = false;
	q->tx_packets++;
	q->tx_bytes += fr->payload;
	cc_catch_up(f, q);
	if (qp_unreliable(q)) {
		q->left = fr->number + 1;
	} else {
		ask(q, fr);
		if (fr->response)
			responder_left(q, fr);
		else
			own_left(f, q, fr);
	}
	if (q->cc->telemetry)
		telemetry_sent(fr->data, frame_near(fr), fr->away, (uint64_t)f->clock.now);
	ps_t late = held_up(f, q, fr);
	cc_sent(f, q, fr->len);
	q->next_send = q->next_send - late > f->clock.now ? q->next_send - late : f->clock.now;
}

/* pacer_gone() - A frame of a queue pair has left the NIC, or was dropped there: the next one's turn */
void pacer_gone(struct fabric *f, struct frame *fr)
{
	struct qp *q = (struct qp *)fr->from;

	q->fetched_bytes -= fr->len;
	if (fr == q->due)
		q->due = NULL;
	look_later(f, q);
	if (paced(q))
		qp_ready(f, q);
}

/* pacer_flush() - What is deferred will be sent anew, or never */
void pacer_flush(struct fabric *f, struct qp *q)
{
	while (q->pacer_queue.head) {
		struct frame *fr = take(q);
		tx_of(fr)->used_bytes -= fr->len;
		q->fetched_bytes -= fr->len;
		frame_release(f, fr);
	}
}
