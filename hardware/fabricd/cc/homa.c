/* Homa: the message that has least left goes first (Montazeri et al., SIGCOMM 2018)
 *
 * Theory of Operation
 *
 * The first CC_INITIAL bytes of each message are unscheduled: they go at once.  The rest is scheduled: the receiver grants,
 * and always to the sender whose message has least left (section 3.3: SRPT).  Of a message CC_WINDOW bytes that were granted
 * have not come at most (RTTbytes), and CC_ACTIVE messages have their turns at a time (section 3.5: overcommitment), so that
 * the cable stays full when one sender does not answer.
 */
#include "cc/puller.h"
#include "nic/params.h"
#include "transport/congestion.h"
#include "transport/qp.h"

static void claims(struct fabric *f, struct qp *q, const struct cc_arrival *a, struct cc_claim *claim)
{
	double room = cc_answer_param(q, CC_WINDOW) - a->under_way;

	(void)f;
	claim->owed = a->wants < room ? a->wants : room;
	claim->rank = a->rest;
	claim->stays = a->rest > 0;
}

static const struct cc_algorithm homa = {
	.name = "homa",
	.by_message = true,
	.arrived = puller_arrived,
	.claims = claims,
};
CC_CONTROL(homa);
