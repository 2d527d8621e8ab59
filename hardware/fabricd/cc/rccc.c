/* RCCC: receiver-credit congestion control of Ultra Ethernet (UEC 1.0, section 3.6.14)
 *
 * Theory of Operation
 *
 * As in htsim's uec.cpp (UecSink::pull, UecPullPacer).  Senders that would like to have something have their turns one after
 * the other, and each turn brings CC_GRANT packets.  Nobody gets more than he has asked for, while anybody else would like
 * to have something.  When nobody does, the idle ones get credit ahead, until they have CC_WINDOW of it, so that their next
 * message need not wait (`slow pulls`).
 */
#include "cc/puller.h"
#include "cc/rccc.h"
#include "nic/params.h"
#include "transport/congestion.h"
#include "transport/qp.h"

enum { BUSY, IDLE };

void rccc_claims(struct fabric *f, struct qp *q, const struct cc_arrival *a, struct cc_claim *claim)
{
	(void)f;
	claim->rank = a->wants > 0 ? BUSY : IDLE;
	if (a->wants > 0)
		claim->owed = a->wants;
	else if (-a->wants < cc_answer_param(q, CC_WINDOW))
		claim->owed = cc_answer_param(q, CC_GRANT) * q->mtu;
}

static const struct cc_algorithm rccc = {
	.name = "rccc",
	.arrived = puller_arrived,
	.claims = rccc_claims,
};
CC_CONTROL(rccc);
