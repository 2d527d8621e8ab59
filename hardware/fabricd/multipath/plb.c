/* One path until it stays congested (PLB: Qureshi et al., SIGCOMM 2022, as in Linux's tcp_plb.c)
 *
 * A round trip is congested if a share of its packets was marked.  After `rounds` of them in a row, or, where nothing is
 * under way, after `idle_rounds`, the queue pair takes another entropy.  A timeout makes it take another at once, and
 * then keep it for once to twice `suspend`: the one before may lead nowhere.
 */
#include "engine/fabric.h"
#include "transport/multipath.h"
#include "transport/qp.h"
#include "transport/repeat.h"

enum { THRESHOLD, ROUNDS, IDLE_ROUNDS, SUSPEND };

struct plb {
	uint32_t entropy, congested; /* round trips in a row */
	uint64_t end, delivered, marked; /* of the round trip under way: its last packet; what had come when it began */
	ps_t suspended_until;
};

static void move(struct fabric *f, struct qp *q, struct plb *own)
{
	uint32_t others = q->multipath->p.entropies - 1;

	own->congested = 0;
	if (!others)
		return;
	own->entropy = (own->entropy + 1 + (uint32_t)(multipath_draw(f, q) % others)) & others;
	q->moved++;
}

static uint32_t pick(struct fabric *f, struct qp *q)
{
	struct plb *own = multipath_own(q);
	double idle_rounds = multipath_param(q, IDLE_ROUNDS);
	bool idle = q->send == q->acked && idle_rounds > 0 && own->congested >= idle_rounds;

	if ((idle || own->congested >= multipath_param(q, ROUNDS)) && f->clock.now >= own->suspended_until)
		move(f, q, own);
	return own->entropy;
}

/* The round trip ends with the acknowledgement of a packet that was sent after it began */
static void returned(struct fabric *f, struct qp *q, uint32_t entropy, bool marked)
{
	struct plb *own = multipath_own(q);
	uint64_t delivered = repeat_delivered(q);

	(void)f;
	(void)entropy;
	own->marked += marked;
	if (delivered <= own->end)
		return;
	double share = (double)own->marked / (double)(delivered - own->delivered);
	if (share < multipath_param(q, THRESHOLD))
		own->congested = 0;
	else if (own->congested < multipath_param(q, ROUNDS))
		own->congested++;
	own->delivered = delivered;
	own->marked = 0;
	own->end = q->left;
}

static void timeout(struct fabric *f, struct qp *q)
{
	struct plb *own = multipath_own(q);
	ps_t suspend = (ps_t)(multipath_param(q, SUSPEND) * PS_PER_NS);

	move(f, q, own);
	own->suspended_until = f->clock.now + suspend;
	if (suspend)
		own->suspended_until += (ps_t)(multipath_draw(f, q) % (uint64_t)suspend);
}

static const struct multipath_policy plb = {
	.name = "plb",
	.params = {[THRESHOLD] = "threshold", [ROUNDS] = "rounds", [IDLE_ROUNDS] = "idle_rounds", [SUSPEND] = "suspend_ns"},
	.state_bytes = sizeof(struct plb),
	.hears = true,
	.pick = pick,
	.returned = returned,
	.timeout = timeout,
};
MULTIPATH_POLICY(plb);
