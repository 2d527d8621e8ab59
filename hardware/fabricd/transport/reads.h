/* READ and atomic operations at the end that asks (reads.c) */
#ifndef TRANSPORT_READS_H
#define TRANSPORT_READS_H

#include <stdbool.h>
#include <stdint.h>

struct fabric;
struct frame;
struct qp;
struct roce_packet;
struct send_wr;

void reads_ask(const struct qp *q, struct roce_packet *pkt, const struct send_wr *wr, uint64_t i, bool again);
bool reads_hold(const struct qp *q);
uint64_t reads_behind(const struct qp *q, uint64_t n);
uint64_t reads_numbers(const struct qp *q);
uint64_t reads_limit(struct qp *q, uint64_t n);
void reads_came(struct fabric *f, struct qp *q, const struct roce_packet *pkt, const struct frame *fr);

#endif
