/* Homa: the message that has least left goes first (Montazeri et al., SIGCOMM 2018)
 *
 * Theory of Operation
 *
 * The first CC_INITIAL bytes of each message are unscheduled: they go at once.  The rest is scheduled: the receiver grants,
 * and always to the sender whose message has least left (section 3.3: SRPT).  A sender has CC_WINDOW bytes granted and not
 * sent at most, and CC_ACTIVE of them have their turns at a time (section 3.5: overcommitment), so that the cable stays full
 * when one does not answer.
 */
#include "nic/params.h"
#include "transport/congestion.h"
#include "transport/qp.h"

static void arrived(struct fabric *f, struct qp *q, const struct cc_arrival *a, struct cc_claim *claim)
{
	(void)f;
	(void)q;
	claim->owed = a->wants;
	claim->rank = a->rest;
	claim->stays = a->rest > 0;
}

static const struct cc_algorithm homa = {
	.name = "homa",
	.by_message = true,
	.arrived = arrived,
};
CC_CONTROL(homa);
