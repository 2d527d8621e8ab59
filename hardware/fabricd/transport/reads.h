/* READ and atomic operations (reads.c) */
#ifndef TRANSPORT_READS_H
#define TRANSPORT_READS_H

#include <stdbool.h>
#include <stdint.h>

struct fabric;
struct frame;
struct qp;
struct roce_packet;
struct send_wr;

/* One that asks */
void reads_ask(const struct qp *q, struct roce_packet *pkt, const struct send_wr *wr, uint64_t i, bool again);
bool reads_hold(const struct qp *q);
uint64_t reads_behind(const struct qp *q, uint64_t n);
uint64_t reads_limit(struct qp *q, uint64_t n);
void reads_came(struct fabric *f, struct qp *q, const struct roce_packet *pkt, const struct frame *fr);

/* One that answers */
bool responder_take(struct fabric *f, struct qp *q, const struct roce_packet *pkt);
void responder_again(struct fabric *f, struct qp *q, const struct roce_packet *pkt);
bool responder_has(const struct qp *q);
uint32_t responder_build(struct fabric *f, struct qp *q, struct frame *fr);
void responder_release(struct qp *q);

#endif
