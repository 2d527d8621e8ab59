/* What a sender is owed under RCCC (rccc.c) */
#ifndef CC_RCCC_H
#define CC_RCCC_H

#include "transport/congestion.h"

void rccc_claims(struct fabric *f, struct qp *q, const struct cc_arrival *a, struct cc_claim *claim);

#endif
