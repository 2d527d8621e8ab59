/* EQDS: receivers let senders send, and nothing else does (Olteanu et al., NSDI 2022)
 *
 * Theory of Operation
 *
 * As in htsim's eqds.cpp.  A sender that begins speculates for a round trip, CC_INITIAL bytes; what it has left when the
 * first credit comes is void.  From then on each packet needs a credit, of CC_GRANT packets (there: one).  Senders have
 * their turns one after the other, and those of whom something was trimmed before all others (_rtx_senders).  When nobody
 * wants anything, the idle ones get credit ahead, as under RCCC.
 */
#include "cc/rccc.h"
#include "cc/puller.h"
#include "transport/congestion.h"

static void claims(struct fabric *f, struct qp *q, const struct cc_arrival *a, struct cc_claim *claim)
{
	rccc_claims(f, q, a, claim);
	if (a->again > 0)
		claim->rank = -1;
}

static const struct cc_algorithm eqds = {
	.name = "eqds",
	.arrived = puller_arrived,
	.claims = claims,
};
CC_CONTROL(eqds);
