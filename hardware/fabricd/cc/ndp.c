/* NDP: a pull for each packet that comes (Handley et al., SIGCOMM 2017)
 *
 * Theory of Operation
 *
 * A sender that begins, or has had nothing to send, sends CC_INITIAL bytes at once.  For each packet that comes in, or what is left of it when
 * a switch has trimmed it, its sender is owed one more, as long as it has more to send.  Pulls leave at the rate at which the
 * cable takes the packets that they bring, senders in turn (section 3.2).
 *
 * A packet of which nothing comes is never pulled for.  So a sender that has to ask begins anew: it has nothing under way.
 */
#include "cc/puller.h"
#include "nic/params.h"
#include "transport/congestion.h"
#include "transport/qp.h"

static void claims(struct fabric *f, struct qp *q, const struct cc_arrival *a, struct cc_claim *claim)
{
	double owed = a->asks ? a->wants : a->owed + (a->came > 0 ? q->mtu : 0);

	(void)f;
	claim->owed = owed < a->wants ? owed : a->wants;
}

static const struct cc_algorithm ndp = {
	.name = "ndp",
	.arrived = puller_arrived,
	.claims = claims,
	.speculates = true,
};
CC_CONTROL(ndp);
