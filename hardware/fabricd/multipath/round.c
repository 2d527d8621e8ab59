/* Every entropy in turn, in another order each time round, whatever comes back (UEC 1.0, 3.6.16.3: oblivious spraying) */
#include "multipath/turn.h"
#include "transport/multipath.h"

static void start(struct fabric *f, struct qp *q)
{
	turn_start(f, q, multipath_own(q));
}

static uint32_t pick(struct fabric *f, struct qp *q)
{
	return turn_next(f, q, multipath_own(q));
}

static const struct multipath_policy round_policy = {
	.name = "round",
	.state_bytes = sizeof(struct turn),
	.start = start,
	.pick = pick,
};
MULTIPATH_POLICY(round_policy);
