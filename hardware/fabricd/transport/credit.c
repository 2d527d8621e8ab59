/* Credit, as queue pairs know it
 *
 * Theory of Operation
 *
 * Under a control with `arrived` (congestion.h) a packet goes only while there is credit.  CC_INITIAL bytes are there from
 * the beginning, because it takes a round trip until the receiver has heard of anything: with them the sender speculates.
 * The first credit ends this, and what is left of them is void (stopSpeculating of htsim's uec.cpp).  Under a control whose
 * credit goes by messages they are there with each message; under one that `speculates`, whenever there was nothing to send.
 *
 * Each data packet says up to where its sender would like to be granted (computePullTarget): what it knows to be granted, and
 * what it has to send, but no more than the window of its control, less the credit that it has.  So what is promised to it is
 * bounded, and nothing has to be made up for when packets are lost: they are to be sent again, so they are asked for again.
 *
 * Who has something to send and no credit asks, if the receiver does not know; and again after CC_ASK, twice that, and so on,
 * because what was asked or granted may be lost.  The receiver answers at once.  If it does not for a timeout, one packet
 * goes without credit: a dead connection is found by the same timeouts as any other, and nobody waits for ever.  One packet
 * may go after each timeout, too.
 *
 * What receivers do is their control's: they pass on what they hear (cc/puller.c).
 */
#include <stdlib.h>

#include "base/units.h"
#include "engine/fabric.h"
#include "link/frame.h"
#include "nic/nic.h"
#include "nic/params.h"
#include "transport/answer.h"
#include "transport/congestion.h"
#include "transport/credit.h"
#include "transport/qp.h"
#include "transport/repeat.h"
#include "transport/responder.h"
#include "wire/roce.h"

#define MOST_DOUBLED 16
#define MOST_SAID (INT64_C(1) << 30) /* bytes: a message that is longer will say so again */
#define LEAST_ASK PS_PER_US

static int32_t beyond(uint32_t a, uint32_t b)
{
	return (int32_t)(a - b);
}

/* What bytes of payload cost: a packet without any waits for its turn, too */
static uint32_t charge(uint32_t bytes)
{
	return bytes ? bytes : 1;
}

/* credit_of() - The credit of a queue pair, as sender or receiver: from now on it has some */
struct credit *credit_of(struct qp *q)
{
	if (q->credit)
		return q->credit;
	q->credit = calloc(1, sizeof *q->credit);
	if (!q->credit)
		abort();
	q->credit->ask = PS_NEVER;
	return q->credit;
}

/* Is the next packet the first of a message that brings its own credit? */
static bool begins(const struct qp *q)
{
	return q->cc->by_message && q->send == q->sent_max && q->send_wr_index != q->sq.tail &&
	       SEND_WR(q, q->send_wr_index)->first == q->send;
}

/* Of the request under way, what has not left yet */
static uint64_t message_rest(const struct qp *q)
{
	if (q->send_wr_index == q->sq.tail || begins(q))
		return 0;
	const struct send_wr *wr = SEND_WR(q, q->send_wr_index);
	uint64_t sent = q->sent_max > wr->first ? (q->sent_max - wr->first) * q->mtu : 0;

	return sent < wr->length ? wr->length - sent : 0;
}

/* Bytes that have not left: of its message and of the READ that it answers, or of all its requests and its peer's READs */
static uint64_t new_bytes(const struct qp *q)
{
	return q->cc->by_message ? message_rest(q) + responder_rest(q, false) : q->credit->unsent;
}

static uint64_t backlog(const struct qp *q)
{
	uint64_t again = q->sent_max - q->send + (q->repeat ? q->repeat->lost : 0);

	return new_bytes(q) + again * q->mtu + responder_rest(q, true);
}

/* credit_start() - The control of a queue pair begins, with credit or without */
void credit_start(struct fabric *f, struct qp *q)
{
	if (q->credit)
		q->credit->ask = PS_NEVER;
	if (!q->cc->arrived)
		return;
	struct credit *c = credit_of(q);
	c->unsent = 0;
	for (uint32_t i = q->send_wr_index; i != q->sq.tail; i++) {
		const struct send_wr *wr = SEND_WR(q, i);
		uint64_t sent = q->sent_max > wr->first ? (q->sent_max - wr->first) * q->mtu : 0, all = wr->length ? wr->length : 1;
		c->unsent += sent < all ? all - sent : 0;
	}
	c->unsent += responder_unsent(q);
	c->left = (int64_t)cc_param(q, CC_INITIAL);
	c->speculates = !q->cc->by_message;
	c->since = f->clock.now;
}

void credit_release(struct qp *q)
{
	credit_forget(q);
	free(q->credit);
	q->credit = NULL;
}

/* credit_posted() - There is a message more to send */
void credit_posted(struct qp *q, const struct send_wr *wr)
{
	if (!q->cc->arrived)
		return;
	credit_owed(q, wr->length && !wr_reads(wr) ? wr->length : 1);
}

/* credit_owed() - So many bytes more are to be sent, of a message or of a response */
void credit_owed(struct qp *q, uint64_t bytes)
{
	struct credit *c = q->credit;
	double initial = cc_param(q, CC_INITIAL);

	if (!q->cc->arrived)
		return;
	bool idle = !c->unsent;
	c->unsent += bytes;
	if (q->cc->speculates && idle && (double)c->left < initial)
		c->left = (int64_t)initial;
}

/* credit_dropped() - So many of them need not be sent any more */
void credit_dropped(struct qp *q, uint64_t bytes)
{
	if (q->cc->arrived)
		q->credit->unsent -= bytes < q->credit->unsent ? bytes : q->credit->unsent;
}

/* credit_open() - May a packet go? */
bool credit_open(const struct qp *q)
{
	return !q->cc->arrived || q->credit->left > 0 || begins(q);
}

static void spend(struct qp *q, uint32_t bytes, bool begins, uint64_t length, bool new)
{
	struct credit *c = q->credit;

	if (begins) {
		double most = cc_param(q, CC_INITIAL);
		c->left = (c->left > 0 ? 0 : c->left) + (int64_t)((double)length < most ? (double)length : most);
	}
	c->left -= charge(bytes);
	if (new)
		c->unsent -= charge(bytes) < c->unsent ? charge(bytes) : c->unsent;
}

/* credit_spend() - The next packet goes
 * @new:	For the first time
 */
void credit_spend(struct qp *q, uint32_t bytes, bool new)
{
	if (q->cc->arrived)
		spend(q, bytes, new && begins(q), SEND_WR(q, q->send_wr_index)->length, new);
}

/* credit_answers() - Likewise a response; @begins: of a READ of so many bytes the first one, or 0 */
void credit_answers(struct qp *q, uint32_t bytes, uint64_t begins, bool new)
{
	if (q->cc->arrived)
		spend(q, bytes, begins && q->cc->by_message, begins, new);
}

static struct demand demand_of(struct qp *q)
{
	struct credit *c = q->credit;
	double most = cc_param(q, CC_WINDOW), all = (double)backlog(q), window = q->cc_state.window + q->mtu;

	if (q->cc->acked && q->cc_state.window > 0 && window < most)
		most = window; /* beside a window of its own it wants no more than that lets out */
	int64_t wants = (int64_t)(all < most ? all : most) - c->left, needs = (int64_t)all - c->left;
	if (c->speculates && wants < q->mtu && all > 0)
		wants = q->mtu; /* so that credit comes and goes on, however little there is to send */
	uint32_t target = c->known + (uint32_t)(wants > 0 ? wants : 0);
	if (beyond(target, c->told) > 0)
		c->told = target;
	needs = needs < MOST_SAID ? needs > 0 ? needs : 0 : MOST_SAID;
	uint64_t rest = new_bytes(q);
	return (struct demand){.target = target, .known = c->known, .end = c->known + (uint32_t)needs,
			       .rest = rest < MOST_SAID ? (uint32_t)rest : (uint32_t)MOST_SAID};
}

/* credit_say() - A data packet was built: it says what its sender would like to have now */
void credit_say(struct fabric *f, struct qp *q, struct frame *fr)
{
	if (!q->cc->arrived)
		return;
	if (fr->data == fr->head && frame_near(fr) + DEMAND_BYTES + TRAILER_BYTES > FRAME_HEAD_BYTES)
		frame_grow(f, fr);
	struct demand d = demand_of(q);
	fr->len = fr->away + demand_append(fr->data, frame_near(fr), &d);
}

static bool waits(const struct qp *q)
{
	bool begins_one = q->cc->by_message && responder_begins(q);

	return q->cc->arrived && q->state == QP_READY && !credit_open(q) && !begins_one && backlog(q);
}

static void request(struct fabric *f, struct qp *q)
{
	uint8_t payload[CREDIT_BYTES];
	struct demand d = demand_of(q);

	request_write(payload, &d);
	q->nic->credit_requests++;
	struct roce_packet pkt = {.opcode = RC_REQUEST, .payload = payload, .payload_bytes = sizeof payload};
	answer_control(f, q, q->p, &pkt);
}

static void ask_later(struct fabric *f, struct qp *q)
{
	struct credit *c = q->credit;
	ps_t after = ps(cc_param(q, CC_ASK)), t = f->clock.now + ((after > LEAST_ASK ? after : LEAST_ASK) << c->asked);

	c->ask = t < c->since + q->p->timeout || c->since + q->p->timeout <= f->clock.now ? t : c->since + q->p->timeout;
	timer_look(f, q);
}

/* credit_look() - There may be more to send, or less credit: does it wait for credit now? */
void credit_look(struct fabric *f, struct qp *q)
{
	struct credit *c = q->credit;

	if (!q->cc->arrived || (c->ask == PS_NEVER) == !waits(q))
		return;
	if (c->ask != PS_NEVER) {
		c->ask = PS_NEVER;
		return;
	}
	c->asked = 0;
	c->since = f->clock.now;
	if (beyond(c->told, c->known) <= 0)
		request(f, q);
	ask_later(f, q);
}

/* credit_due() - When to ask again, or PS_NEVER */
ps_t credit_due(const struct qp *q)
{
	return q->credit ? q->credit->ask : PS_NEVER;
}

/* credit_ask() - That time has come */
void credit_ask(struct fabric *f, struct qp *q)
{
	struct credit *c = q->credit;

	c->ask = PS_NEVER;
	if (!waits(q))
		return;
	if (f->clock.now - c->since >= q->p->timeout) {
		c->since = f->clock.now;
		c->asked = 0;
		credit_one(q);
		qp_ready(f, q);
	} else {
		c->asked += c->asked < MOST_DOUBLED;
		request(f, q);
	}
	if (c->ask == PS_NEVER && waits(q))
		ask_later(f, q);
}

/* credit_one() - One packet may go without any */
void credit_one(struct qp *q)
{
	if (q->cc->arrived && q->credit->left <= 0)
		q->credit->left = 1;
}

/* credit_granted() - A credit has come in */
void credit_granted(struct fabric *f, struct qp *q, const struct roce_packet *pkt)
{
	struct credit *c = q->credit;
	uint32_t number;

	if (!credit_read(pkt->payload, pkt->payload_bytes, &number) || !q->cc->arrived)
		return;
	q->nic->rx_credits++;
	c->since = f->clock.now;
	int32_t more = beyond(number, c->known);
	if (more <= 0)
		return;
	double most = cc_param(q, CC_WINDOW), all = (double)(c->speculates && c->left > 0 ? 0 : c->left) + more;
	c->known = number;
	c->speculates = false;
	c->left = (int64_t)(most > 0 && all > most ? most : all);
	c->ask = PS_NEVER;
	if (q->cc->granted)
		q->cc->granted(f, q, (uint32_t)more);
	qp_ready(f, q);
}

/* credit_arrived() - A data packet has come in: it says what its sender would like to have */
void credit_arrived(struct fabric *f, struct qp *q, const struct frame *fr, uint32_t bytes)
{
	if (!q->answers->cc->arrived)
		return;
	struct demand d = demand_read(fr->data, frame_near(fr), fr->away);
	if (d.present)
		q->answers->cc->arrived(f, q, &d, bytes, false);
}

/* credit_trimmed() - What is left of one has come in: that is cut off, but the packet is to be sent again, which needs credit
 * beyond what was asked for (UecSink::processTrimmed)
 */
void credit_trimmed(struct fabric *f, struct qp *q)
{
	if (!q->answers->cc->arrived)
		return;
	const struct credit *c = credit_of(q);
	struct demand d = {.present = true, .target = c->target + q->mtu, .end = c->end + q->mtu, .rest = c->rest};
	credit_of(q)->again += q->mtu;
	q->answers->cc->arrived(f, q, &d, q->mtu, false);
}

/* credit_asked() - So does a request */
void credit_asked(struct fabric *f, struct qp *q, const struct roce_packet *pkt)
{
	struct demand d = request_read(pkt->payload, pkt->payload_bytes);

	if (d.present && q->answers->cc->arrived)
		q->answers->cc->arrived(f, q, &d, 0, true);
}

/* credit_forget() - Nothing is to be granted to its peer any more */
void credit_forget(struct qp *q)
{
	if (q->credit && q->credit->forget)
		q->credit->forget(q);
}
