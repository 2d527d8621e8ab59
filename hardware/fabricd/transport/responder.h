/* READ and atomic operations at the end that answers (responder.c) */
#ifndef TRANSPORT_RESPONDER_H
#define TRANSPORT_RESPONDER_H

#include <stdbool.h>
#include <stdint.h>

#include "transport/qp.h"

struct fabric;
struct frame;
struct roce_packet;

bool responder_take(struct fabric *f, struct qp *q, const struct roce_packet *pkt);
void responder_again(struct fabric *f, struct qp *q, const struct roce_packet *pkt);
bool responder_ready(const struct qp *q);
uint32_t responder_build(struct fabric *f, struct qp *q, struct frame *fr);
void responder_left(struct qp *q, const struct frame *fr);
void responder_told(struct fabric *f, struct qp *q, const struct roce_packet *pkt, const struct frame *fr);
void responder_release(struct qp *q);

uint64_t responder_under_way(const struct qp *q);
uint64_t responder_unsent(const struct qp *q);
uint64_t responder_rest(const struct qp *q, bool again);
uint64_t responder_begins(const struct qp *q);

/* responder_has() - Is there a response to be sent now? */
static inline bool responder_has(const struct qp *q)
{
	return q->responder && responder_ready(q);
}

/* qp_all_left() - Packets that have left, responses among them, and that are known to have come: what a control counts by */
static inline uint64_t qp_all_left(const struct qp *q)
{
	return q->left + q->responses_left;
}

static inline uint64_t qp_all_done(const struct qp *q)
{
	return q->acked + q->responses_done;
}

#endif
