/* Recycled entropies (Bonato et al., "REPS: Recycled Entropy Packet Spraying", 2025)
 *
 * The entropy of an acknowledgement without a mark goes into a ring, and a packet takes the oldest that was not taken yet;
 * if there is none, a random one.  After a failure it is frozen for a while and draws none: it goes round the ring, as
 * those have led somewhere.  When that is over, so many packets explore random ones.  A failure is what the paper's
 * senders know by a timer of each packet: a packet that is lost, or only a timeout of them all.
 */
#include "engine/fabric.h"
#include "transport/multipath.h"
#include "transport/qp.h"

enum { BUFFER, FREEZE_ON, FREEZE, EXPLORE };
enum { ON_LOSS, ON_TIMEOUT };

#define RING_MAX 64

struct reps {
	uint16_t entropy[RING_MAX];
	uint32_t head, known, fresh; /* where the next goes; slots that were ever filled; those before the head not taken */
	uint32_t explore;
	ps_t frozen_until; /* 0: it is not frozen */
};

static uint32_t ring(const struct qp *q)
{
	return (uint32_t)multipath_param(q, BUFFER);
}

static uint32_t pick(struct fabric *f, struct qp *q)
{
	struct reps *own = multipath_own(q);
	uint32_t size = ring(q), at;

	if (!own->known || own->explore || (!own->fresh && !own->frozen_until)) {
		own->explore -= own->explore > 0;
		return (uint32_t)multipath_draw(f, q) & (q->multipath->p.entropies - 1);
	}
	q->recycled++;
	if (own->fresh) {
		at = (own->head + size - own->fresh) % size;
		own->fresh--;
	} else {
		at = own->head % own->known;
		own->head = (at + 1) % size;
	}
	return own->entropy[at];
}

static void returned(struct fabric *f, struct qp *q, uint32_t entropy, bool marked)
{
	struct reps *own = multipath_own(q);
	uint32_t size = ring(q);

	if (marked)
		return;
	own->entropy[own->head] = (uint16_t)entropy;
	own->known = own->head < own->known ? own->known : own->head + 1;
	own->head = (own->head + 1) % size;
	own->fresh += own->fresh < size;
	if (own->frozen_until && f->clock.now > own->frozen_until) {
		own->frozen_until = 0;
		own->explore = (uint32_t)multipath_param(q, EXPLORE);
	}
}

static void timeout(struct fabric *f, struct qp *q)
{
	struct reps *own = multipath_own(q);

	if (own->frozen_until || own->explore)
		return;
	own->frozen_until = f->clock.now + (ps_t)(multipath_param(q, FREEZE) * PS_PER_NS);
	q->freezes++;
}

static void lost(struct fabric *f, struct qp *q, uint32_t entropy)
{
	(void)entropy;
	if (multipath_param(q, FREEZE_ON) == ON_LOSS)
		timeout(f, q);
}

static const char *wrong(const double *v)
{
	bool right = v[BUFFER] >= 1 && v[BUFFER] <= RING_MAX && v[EXPLORE] <= UINT32_MAX;

	return right ? NULL : "multipath: params: a buffer of 1 to 64, 0 to 4294967295 to explore";
}

static const struct multipath_policy reps = {
	.name = "reps",
	.params = {[BUFFER] = "buffer", [FREEZE_ON] = "freeze_on", [FREEZE] = "freeze_ns", [EXPLORE] = "explore"},
	.state_bytes = sizeof(struct reps),
	.hears = true,
	.wrong = wrong,
	.pick = pick,
	.returned = returned,
	.lost = lost,
	.timeout = timeout,
};
MULTIPATH_POLICY(reps);
