/* READ and atomic operations at the end that asks (reads.c) */
#ifndef TRANSPORT_READS_H
#define TRANSPORT_READS_H

#include <stdbool.h>
#include <stdint.h>

#include "transport/qp.h"

struct fabric;
struct frame;
struct roce_packet;
struct send_wr;

void reads_ask(const struct qp *q, struct roce_packet *pkt, const struct send_wr *wr, uint64_t i, bool again);
bool reads_full(const struct qp *q);
uint64_t reads_end(const struct qp *q, uint64_t n);
uint64_t reads_numbers(const struct qp *q);
uint64_t reads_limit(struct qp *q, uint64_t n);
void reads_came(struct fabric *f, struct qp *q, const struct roce_packet *pkt, const struct frame *fr);

/* reads_hold() - Must the next new request wait, as too much is read already, or it is to come behind that? */
static inline bool reads_hold(const struct qp *q)
{
	return q->reads && reads_full(q);
}

/* reads_behind() - The number behind packet @n of ours, which has not been acknowledged: a READ takes several */
static inline uint64_t reads_behind(const struct qp *q, uint64_t n)
{
	return q->reads ? reads_end(q, n) : n + 1;
}

#endif
