/* What a receiver says to its sender (answer.c) */
#ifndef TRANSPORT_ANSWER_H
#define TRANSPORT_ANSWER_H

#include <stdbool.h>
#include <stdint.h>

struct fabric;
struct nic_params;
struct qp;
struct roce_packet;

void answer(struct fabric *f, struct qp *q, uint8_t syndrome, uint64_t packet, uint32_t msn);
void answer_trimmed(struct fabric *f, struct qp *q, uint32_t psn, bool last_hop);
void answer_come(struct fabric *f, struct qp *q);
void answer_ahead(struct fabric *f, struct qp *q, bool at_once, bool again);
void answer_closed(struct fabric *f, struct qp *q, uint32_t taken);
void answer_congestion(struct fabric *f, struct qp *q);
void answer_reads(struct fabric *f, struct qp *q, struct roce_packet *pkt);
void answer_control(struct fabric *f, struct qp *q, const struct nic_params *by, struct roce_packet *pkt);

#endif
