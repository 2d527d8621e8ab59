/* NSCC and RCCC together (UEC 1.0, section 3.6): a packet goes if the sender's window and the receiver's credit let it
 *
 * A sender asks for no more credit than its window would let out (computePullTarget of htsim's uec.cpp).
 */
#include "cc/nscc.h"
#include "cc/puller.h"
#include "cc/rccc.h"

static const struct cc_algorithm uec = {
	.name = "uec",
	NSCC,
	.arrived = puller_arrived,
	.claims = rccc_claims,
};
CC_CONTROL(uec);
