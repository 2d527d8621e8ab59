/* Writes whose packets are placed in any order (place.c) */
#ifndef TRANSPORT_PLACE_H
#define TRANSPORT_PLACE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/units.h"
#include "transport/qp.h"

struct early;
struct fabric;
struct frame;
struct pieces;
struct roce_packet;
struct send_wr;

void place_copy(struct fabric *f, struct qp *q, uint8_t *to, const struct roce_packet *pkt, const struct frame *fr, uint64_t left);
bool place_pieces(struct qp *q, const struct pieces *pieces, uint32_t key, uint64_t address, uint64_t at, const struct roce_packet *pkt,
		  const struct frame *fr);
void place_alone(const struct qp *q, struct roce_packet *pkt, const struct send_wr *wr, uint64_t i, uint32_t bytes);
bool place_payload(struct fabric *f, struct qp *q, const struct roce_packet *pkt, const struct frame *fr);
ps_t place_pcie(struct fabric *f, struct qp *q, uint32_t bytes);
bool place_has_receive(struct fabric *f, struct qp *q);
void place_complete(struct fabric *f, struct qp *q, const struct roce_packet *pkt, ps_t visible);
struct early place_look(const struct qp *q, const struct roce_packet *pkt, struct frame *fr, bool asks, uint8_t **at);
void place_end(struct fabric *f, struct qp *q, uint64_t n, ps_t visible);

/* place_crosses() - How many of so many bytes, that go to or come from memory with that key, cross PCIe */
static inline uint32_t place_crosses(const struct qp *q, uint32_t key, uint32_t bytes)
{
	return q->owner->ops->on_device && q->owner->ops->on_device(q, key) ? 0 : bytes;
}

/* place_in_nic() - Is all that is sent for it in the NIC already? */
static inline bool place_in_nic(const struct qp *q, const struct send_wr *wr)
{
	return wr_in_nic(wr) || (!wr->pieces && !place_crosses(q, wr->lkey, 1));
}

#endif
