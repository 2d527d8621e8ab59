/* Congestion control: what is common to all controls. */
#include <string.h>

#include "base/units.h"
#include "engine/fabric.h"
#include "link/frame.h"
#include "nic/nic.h"
#include "nic/params.h"
#include "transport/congestion.h"
#include "transport/credit.h"
#include "transport/multipath.h"
#include "transport/pacer.h"
#include "transport/qp.h"
#include "transport/responder.h"
#include "wire/ethernet.h"
#include "wire/ip.h"
#include "wire/roce.h"

#define WINDOW_ACKS 4
#define LEAST_RATE 1e6 /* bits/s: a packet in some ms, whatever min_rate says */

/* As fast as the cable: whatever holds it back is PFC or loss */
const struct cc_algorithm cc_none = {.name = "none"};
CC_CONTROL(cc_none);

static struct cc_algorithm *added;

/* cc_add() - A control that is in no table */
void cc_add(struct cc_algorithm *cc)
{
	cc->next = added;
	added = cc;
}

/* cc_next() - The control behind one; NULL: the first, or there is no other */
const struct cc_algorithm *cc_next(const struct cc_algorithm *cc)
{
	if (!cc)
		return *__start_cc_controls;
	REGISTRY_EACH(struct cc_algorithm, cc_controls, control)
		if (*control == cc)
			return control + 1 < __stop_cc_controls ? control[1] : added;
	return cc->next;
}

/* cc_own_bytes() - Room behind each queue pair for the state of whatever control it gets */
size_t cc_own_bytes(void)
{
	size_t most = 0;

	CC_EACH(cc)
		most = cc->state_bytes > most ? cc->state_bytes : most;
	return most;
}

/* cc_param() - One of the three that are common, or of the control's own */
double cc_param(const struct qp *q, unsigned which)
{
	return q->p->cc_params.v[which];
}

/* cc_answer_param() - Likewise of the control that the peer sends by: for whoever answers it */
double cc_answer_param(const struct qp *q, unsigned which)
{
	return q->answers->cc_params.v[which];
}

/* cc_start() - A queue pair is connected, or its control is another from now on */
void cc_start(struct fabric *f, struct qp *q)
{
	struct cc_state *s = &q->cc_state;

	cc_stop(q);
	bool hears = !qp_unreliable(q) || (q->p->cc->notified && !q->p->cc->acked); /* of its packets nothing but notifications comes back */
	q->cc = q->tx == &q->nic->tx[1] || !hears ? &cc_none : q->p->cc;
	*s = (struct cc_state){.rate_timer = PS_NEVER, .asked = q->left_asked + q->responses_left};
	memset(cc_own(q), 0, q->cc->state_bytes);
	s->rate = s->line_rate = q->tx->port->cable ? (double)q->tx->port->cable->p.rate_bps : 1e12;
	if (q->tx == &q->nic->tx[0] && (!q->cc->arrived || q->cc->acked)) /* without a window of its own, credit is the limit */
		s->window = cc_param(q, CC_WINDOW);
	q->next_send = 0;
	credit_start(f, q);
	if (q->cc->start)
		q->cc->start(f, q);
	if (q->own && q->own->rate > 0 && s->rate > q->own->rate)
		cc_set_rate(q, q->own->rate, f->clock.now);
}

/* cc_stop() - None from now on */
void cc_stop(struct qp *q)
{
	if (q->cc->stop)
		q->cc->stop(q);
	q->cc = &cc_none;
}

/* cc_restart() - The NIC's control or its parameters are others from now on */
void cc_restart(struct fabric *f, struct qp *q)
{
	cc_start(f, q);
	q->cc_state.window_end = qp_all_left(q);
	pacer_kick(f, q);
}

/* cc_catch_up() - Let the timers that have run out by now act */
void cc_catch_up(struct fabric *f, struct qp *q)
{
	if (q->cc->catch_up)
		q->cc->catch_up(f, q);
}

/* cc_sent() - A frame of that length starts on the cable; when may the next? */
void cc_sent(struct fabric *f, struct qp *q, uint32_t frame_bytes)
{
	q->next_send = f->clock.now + (ps_t)((double)wire_bytes(frame_bytes) * 8 * (double)PS_PER_S / q->cc_state.rate + 0.5);
	if (q->cc->sent)
		q->cc->sent(f, q, frame_bytes);
}

/* cc_answered() - When had the packet left that is answered?  0: the control does not have its NICs note that */
ps_t cc_answered(const struct qp *q, const struct frame *fr)
{
	struct hop hops[HOPS_MAX];
	struct telemetry t = {.hop = hops};

	if (q->cc->telemetry)
		telemetry_read(fr->data, frame_near(fr), fr->away, &t);
	return t.present ? (ps_t)t.sent_ps : 0;
}

/* cc_told() - An acknowledgement has come in, with what its control wants to know; how many packets it is about is set */
void cc_told(struct fabric *f, struct qp *q, const struct cc_ack *of, const struct roce_packet *pkt, const struct frame *fr)
{
	struct hop hops[HOPS_MAX];
	struct telemetry t = {.hop = hops};

	if (!q->cc->acked || !q->cc->telemetry)
		return;
	telemetry_read(fr->data, frame_near(fr), fr->away, &t);
	struct cc_ack ack = {
		.bytes = of->packets * q->mtu,
		.packets = of->packets,
		.full = of->full,
		.acked = qp_all_done(q),
		.rtt = t.present ? f->clock.now - (ps_t)t.sent_ps : 0,
		.switches = pkt->ttl < TTL_SENT ? TTL_SENT - pkt->ttl : 0,
		.t = &t,
	};
	cc_catch_up(f, q);
	q->cc->acked(f, q, &ack);
	pacer_kick(f, q);
}

/* cc_notified() - A congestion notification has come in */
void cc_notified(struct fabric *f, struct qp *q)
{
	q->cnps++;
	cc_catch_up(f, q);
	if (q->cc->notified && q->cc->notified(f, q))
		q->nic->rp_cnps++;
	else
		q->nic->rp_ignored++;
}

/* cc_lost() - So many packets are found to be lost; they are sent again from now on */
void cc_lost(struct fabric *f, struct qp *q, enum cc_loss how, uint32_t packets)
{
	if (!q->cc->lost || !packets)
		return;
	cc_catch_up(f, q);
	q->cc->lost(f, q, how, packets);
}

/* cc_hops() - So many stamps a packet has room for */
uint8_t cc_hops(const struct qp *q)
{
	double hops = cc_param(q, CC_HOPS);

	return !q->cc->stamped ? 0 : hops > HOPS_MAX ? HOPS_MAX : (uint8_t)hops;
}

/* cc_ack_gap() - So many packets share an acknowledgement
 *
 * nic.ack_every, but a control that goes by acknowledgements hears WINDOW_ACKS times in a
 * window: otherwise a window of fewer packets would stand still until its last has come.
 */
uint32_t cc_ack_gap(const struct qp *q)
{
	uint32_t most = q->p->ack_every;
	double share = q->cc_state.window / q->mtu / WINDOW_ACKS;

	if (!q->cc->acked || q->cc_state.window <= 0 || share >= most)
		return most;
	return share < 1 ? 1 : (uint32_t)share;
}

/* cc_set_rate() - From @t on, between the least rate and the cable's; what was left to wait changes with it */
void cc_set_rate(struct qp *q, double bps, ps_t t)
{
	struct cc_state *s = &q->cc_state;
	double before = s->rate;
	double least = cc_param(q, CC_MIN_RATE) > LEAST_RATE ? cc_param(q, CC_MIN_RATE) : LEAST_RATE;

	double most = q->own && q->own->rate > 0 && q->own->rate < s->line_rate ? q->own->rate : s->line_rate;

	s->rate = bps > most ? most : bps < least ? least : bps;
	if (q->next_send > t)
		q->next_send = t + (ps_t)((double)(q->next_send - t) * before / s->rate + 0.5);
}

/* cc_window_open() - May one more packet go, with so many under way?
 *
 * A window holds whole packets (RFC 5681: nothing beyond it is sent); HPCC's is open
 * until it is full (IsWinBound of the authors' code).  One packet can always go.  What may
 * have come and still waits for its acknowledgement is not under way (cc_ack_gap).
 */
bool cc_window_open(const struct qp *q, uint64_t under_way)
{
	double window = q->cc_state.window;

	if (!under_way || window <= 0)
		return true;
	window += q->cc->acked ? (double)(cc_ack_gap(q) - 1) * q->mtu : 0;
	return q->cc->fills_window ? (double)(under_way * q->mtu) < window : (double)((under_way + 1) * q->mtu) <= window;
}

/* cc_round_over() - Does this acknowledgement end the round trip under way?  The next then begins
 *
 * It ends with the first packet that was sent after it began, which therefore asks to be
 * acknowledged (pacer.c): so what is done once a round trip does not depend on nic.ack_every.
 */
bool cc_round_over(struct qp *q, const struct cc_ack *ack)
{
	if (ack->acked <= q->cc_state.window_end)
		return false;
	q->cc_state.window_end = qp_all_left(q);
	return true;
}

/* cc_set_window() - One packet at least can always be under way */
void cc_set_window(struct qp *q, double bytes)
{
	struct cc_state *s = &q->cc_state;
	double most = cc_param(q, CC_WINDOW);

	s->window = bytes > most && most > 0 ? most : bytes < q->mtu ? q->mtu : bytes;
}

/* qps_params_changed() - A NIC's parameters are new */
void qps_params_changed(struct fabric *f, struct nic *n)
{
	for (uint32_t i = 0; i < n->qp_count; i++) {
		struct qp *q = n->qps[i];
		if (q->own && q->own->datagrams)
			continue;
		if (q->state != QP_READY) {
			if (q->cc != q->p->cc)
				cc_stop(q);
			continue;
		}
		cc_restart(f, q);
		multipath_start(f, q);
		qp_ready(f, q);
	}
}
