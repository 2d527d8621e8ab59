/* What a program asks of its queue pair (attributes.c) */
#ifndef CONNECTION_ATTRIBUTES_H
#define CONNECTION_ATTRIBUTES_H

#include <stdbool.h>
#include <stdint.h>

struct fabric;
struct nic;
struct qp;

/* As in ibv_qp_state */
enum asked_state { ASK_RESET = 0, ASK_INIT = 1, ASK_RTR = 2, ASK_RTS = 3, ASK_SQD = 4, ASK_ERROR = 6 };

struct qp_wanted {
	enum asked_state state;
	uint8_t mtu, timeout, retry, rnr_retry, rnr_timer, reads_out, reads_in; /* codes of the InfiniBand specification */
	bool own_class;
	uint8_t dscp, class;
	uint32_t rights, expected_psn, send_psn, peer_number, rate_kbps, qkey;
	struct nic *peer; /* of ASK_RTR, but of datagrams */
};

bool qp_may_become(uint8_t from, uint8_t to);
void qp_look_drained(struct fabric *f, struct qp *q);
void qp_modify(struct fabric *f, struct qp *q, const struct qp_wanted *a);

#endif
