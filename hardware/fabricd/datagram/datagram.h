/* Unreliable datagrams (datagram.c), and connections (unreliable.c) */
#ifndef DATAGRAM_DATAGRAM_H
#define DATAGRAM_DATAGRAM_H

#include <stdbool.h>
#include <stdint.h>

struct fabric;
struct frame;
struct nic;
struct qp;
struct roce_packet;

#define GRH_BYTES 40 /* before the payload in a receive: an IPv4 header stands in its last 20 (RoCEv2 annex, A17.4.5.2) */

extern const struct tx_ops unreliable_tx_ops;

void datagram_start(struct fabric *f, struct qp *q);
void datagram_ready_to_send(struct qp *q, uint32_t psn);
void datagram_receive(struct fabric *f, struct nic *n, const struct roce_packet *pkt, struct frame *fr, bool scale_up);

#endif
