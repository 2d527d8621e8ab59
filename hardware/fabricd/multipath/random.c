/* Any entropy, drawn for each packet */
#include "transport/multipath.h"
#include "transport/qp.h"

static uint32_t pick(struct fabric *f, struct qp *q)
{
	return (uint32_t)multipath_draw(f, q) & (q->multipath->p.entropies - 1);
}

static const struct multipath_policy random_policy = {
	.name = "random",
	.pick = pick,
};
MULTIPATH_POLICY(random_policy);
