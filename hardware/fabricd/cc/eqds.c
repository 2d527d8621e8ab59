/* EQDS: receivers let senders send, and nothing else does (Olteanu et al., NSDI 2022)
 *
 * Theory of Operation
 *
 * As in htsim's eqds.cpp.  A sender that has been idle speculates for a round trip, CC_INITIAL bytes; what it has left when
 * the first credit comes is void.  From then on each packet needs a credit, of CC_GRANT packets (there: one).  Senders have
 * their turns one after the other.  Nothing is granted ahead.
 */
#include "cc/puller.h"
#include "nic/params.h"
#include "transport/congestion.h"
#include "transport/qp.h"

static void claims(struct fabric *f, struct qp *q, const struct cc_arrival *a, struct cc_claim *claim)
{
	(void)f;
	(void)q;
	claim->owed = a->wants;
}

static const struct cc_algorithm eqds = {
	.name = "eqds",
	.arrived = puller_arrived,
	.claims = claims,
	.speculates = true,
};
CC_CONTROL(eqds);
