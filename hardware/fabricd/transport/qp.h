/* Queue pairs: reliable connections
 *
 * A queue pair takes requests (qp.c), cuts them into packets of the path MTU and sends them until they are
 * acknowledged (send.c).  It takes its peer's packets, in order (receive.c, recovery/reorder.c) or in any (place.c).  Its
 * congestion control says when packets may leave the NIC (congestion.c, pacer.c).  It has an owner: a worker, a generated flow or an engine in the NIC.
 * The owner's table says where payload comes from and who is told.
 */
#ifndef TRANSPORT_QP_H
#define TRANSPORT_QP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/ring.h"
#include "link/frame.h"
#include "nic/nic.h"
#include "transport/congestion.h"
#include "transport/request.h"

struct credit;
struct multipath;
struct qp;
struct reorder;
struct responder;
struct repeat;
struct roce_packet;
struct shared;

#define QPS_MAX 4096
#define QP_NUMBERS (1u << 24)
#define WRS_MAX 16384

enum qp_state { QP_CONNECTING, QP_READY, QP_ERROR };

/* What a program has given its queue pair (connection/attributes.c); others go by their NIC */
struct qp_attributes {
	ps_t timeout; /* PS_NEVER: none */
	double rate; /* at most, in bit/s; 0: as fast as the cable */
	uint32_t rights, pd, qkey; /* of its peer; protection domain; of datagrams */
	bool datagrams; /* unreliable ones, to whom each names (datagram/datagram.c): it has no peer */
	bool unreliable; /* connection: nothing is acknowledged, and nothing sent again (datagram/unreliable.c) */
	struct shared *shared; /* where its receives come from, or NULL: from its own queue */
	uint8_t retry, rnr_retry, rnr_timer, reads_out, reads_in; /* READs and atomic operations under way at most: of its own; of its peer */
	bool sends_broken, draining; /* by a request that was bad; what has begun is not done yet (connection/attributes.c) */
	uint8_t asked; /* enum asked_state: what its program has brought it to, with all that is on its way to the NIC */
};

/* Whose a queue pair is: a worker, a generated flow, or an engine that makes and takes its packets inside the NIC */
struct qp_owner {
	const struct qp_owner_ops *ops;
};

enum engine_verdict { ENGINE_TAKEN, ENGINE_NOT_YET, ENGINE_REFUSED };

struct qp_owner_ops {
	bool in_nic;	/* what it sends stands in the NIC's memory: it needs no fetch */
	bool lends; /* payload stays where it is, unchanged, until its request has ended: it needs no copy */
	bool generated; /* traffic that no worker asked for: it says nothing, and needs no receive requests */
	/* What a request that was posted now would end with, as its memory is not its owner's; or NULL: nothing is checked */
	enum wc_status (*check)(struct qp *q, const struct send_wr *wr);
	/* Payload of packet @n of a request, which goes out now, perhaps again; NULL: there is none */
	const uint8_t *(*payload)(struct fabric *f, struct qp *q, const struct send_wr *wr, uint64_t n);
	/* A request to send has ended */
	void (*sent)(struct fabric *f, struct qp *q, const struct send_wr *wr, enum wc_status status);
	/* The expected packet has come: the owner takes it itself.  NOT_YET: it is to come again (RNR).  NULL: into memory */
	enum engine_verdict (*take)(struct fabric *f, struct qp *q, const struct roce_packet *pkt);
	/* Memory that a peer, or (LOCAL_WRITE) what it sends, may get at.  Return: false if it may not; @at: NULL if what comes is thrown away */
	bool (*memory)(struct qp *q, enum right right, uint32_t key, uint64_t offset, uint64_t length, uint8_t **at);
	/* Is that the NIC's own memory, which is not reached by PCIe?  NULL: there is none */
	bool (*on_device)(const struct qp *q, uint32_t key);
	/* Carry out a request that needs no packet; how it has ended.  And what a peer asks for with a message: a key is to be valid no more */
	enum wc_status (*local)(struct qp *q, const struct send_wr *wr);
	bool (*invalidate)(struct qp *q, uint32_t key);
	/* A receive request has ended, with what @pkt ends (NULL: with nothing), visible at @t */
	void (*received)(struct fabric *f, struct qp *q, const struct recv_wr *wr, enum wc_status status, const struct roce_packet *pkt, ps_t t);
	/* Of queue pairs that share receives (worker/shared.c), or NULL: one for this one, and whether there is any; what it has not used */
	bool (*lend)(struct fabric *f, struct qp *q);
	void (*take_back)(struct qp *q);
	/* All of a message was written by a peer, visible at @t; or NULL */
	void (*written)(struct fabric *f, struct qp *q, ps_t t);
	/* The queue pair is broken: by what its peer asked for, if that is so (AETH_NAK_..), or 0; or NULL: it is reported */
	void (*broken)(struct fabric *f, struct qp *q, uint8_t syndrome);
	void (*acked)(struct fabric *f, struct qp *q); /* qp.acked has moved; or NULL */
	void (*drained)(struct fabric *f, struct qp *q); /* its send queue is, as its program has asked */
	void (*release)(struct qp *q);		       /* the queue pair goes; or NULL */
};

/* Made by qp_new(), with room behind it */
struct qp {
	_Alignas(LINE_BYTES) struct tx_source source;
	struct qp_owner *owner;
	struct nic *nic, *peer;
	struct qp *peer_qp;
	struct tx *tx;
	const struct nic_params *p, *answers; /* by which it sends; by which the peer does, and it answers */
	const struct cc_algorithm *cc;
	uint32_t number, peer_number;
	struct qp_attributes *own; /* or NULL */
	enum qp_state state;
	bool holds; /* sends are held: it may only receive yet */
	bool gone; /* see connection/destroy.c */
	uint32_t mtu;
	uint16_t src_port;
	uint16_t came_by; /* source port of the last data packet that came in */
	bool came_marked, own_class; /* not the NIC's */
	bool alone, any_order; /* its writes, and those of its peer, are placed in any order (place.c) */
	bool responds, untold; /* its last packet was a response; sender: the last request was a write without an immediate */
	uint8_t dscp, class;
	uint32_t send_wr_index; /* request that `send` belongs to */
	/* sender: packets are counted from the first PSN, a PSN is their low 24 bits */
	struct ring sq;
	uint64_t next_packet; /* next number to hand out to a posted request */
	uint64_t made; /* first packet that is not to be sent yet: an engine makes them one by one, a program drains its queue; or UINT64_MAX */
	uint64_t barred; /* of the first request that is bad: the first packet; or UINT64_MAX */
	uint64_t asked; /* behind the last packet that asks for an acknowledgement */
	uint64_t told, read_again; /* reads.c: behind the last packet that its peer has taken; and that was missing and asked for again */
	uint32_t reads; /* READs and atomic operations under way */
	struct responder *responder; /* what it owes its peer, or NULL (responder.c) */
	uint64_t responses_taken, responses_left, responses_done; /* packets of its READs; of its peer's that left; that came or are lost */
	uint64_t first, send, acked, sent_max; /* first of all, next to send, first not acknowledged, first never sent */
	struct lender lent; /* payload that is under way */
	ps_t timer, rnr_until;
	ps_t timer_event; /* the earliest EV_QP_TIMER that is due, or PS_NEVER */
	uint32_t retries, rnr_retries;
	struct repeat *repeat; /* selective repeat: what is to be sent again */
	bool probes; /* and the next packet asks what has come: it goes whatever the window says */
	/* pacer.c */
	ps_t next_send;	      /* not before, if it is paced */
	ps_t pace_event;      /* the earliest EV_QP_SEND that is due, or PS_NEVER */
	struct fifo pacer_queue;     /* fetched, and not due */
	struct frame *due;    /* one that was deferred and has joined the port's queue again, or NULL */
	uint64_t due_pauses;  /* of its class, so far; UINT64_MAX: it was paused then */
	uint64_t fetched_bytes; /* in the NIC: being fetched, deferred or queued */
	uint64_t left, left_asked; /* behind the last packet that has left, and the last one that asked to be acknowledged */
#define COUNTER(field, name, unit, sort, meaning) uint64_t field;
#define VALUE(expression, name, unit, sort, meaning)
#include "transport/counters.def"
	struct multipath *multipath; /* entropies that it sprays over, or NULL (multipath.c) */
	struct cc_state cc_state; /* congestion control; its own behind the queue pair */
	struct credit *credit;	  /* what it may send by that, and its peer; or NULL (credit.c) */
	/* receiver */
	struct ring rq;
	uint64_t expected;
	uint64_t message_at, message_left, message_bytes;
	uint32_t message_rkey, msn;
	uint64_t owed; /* selective repeat: behind the last packet that was trimmed and asked for an answer, until it has come; or 0 */
	uint64_t trimmed; /* go-back-N: the first behind the expected one of which it is known that it will not come; or UINT64_MAX */
	bool trimmed_last_hop; /* that one, by the switch before us */
	bool nak_sent, in_message, answer_due;
	bool keys_stale[2]; /* keys that it was told of, or told, name no memory any more: of ours for its peer (0), and for itself (1) */
	uint8_t message_kind;
	uint64_t ahead;	      /* number of what is copied next (engine/ahead.h) */
	uint64_t usable;      /* receives that the NIC may use: of recv_delay */
	uint32_t seen, marked; /* data packets since the last acknowledgement, and those with CE */
	struct reorder *reorder; /* selective repeat: what came ahead */
	ps_t came, cnp_sent;  /* when the last data packet came in, and the last congestion notification went out */
	struct telemetry last; /* of the packet that is acknowledged next */
	uint64_t sent_bytes_acked;
	struct qp_sample {
		uint32_t number;
		uint64_t rate, sent, flying;
	} sample; /* what was written of it last */
	enum wc_status error;
	uint32_t connect_tag, connect_peer, connect_cookie;
	bool no_scale_up;
	const json_t *transport; /* what it sends by instead of what its NIC does, or NULL */
	uint16_t private_bytes;
	uint8_t private_data[256];
	ps_t connect_time;
};

/* Whoever lays what a transport says over what a NIC has, and faults over both (fault/params.c) */
struct transports {
	const struct nic_params *(*params)(struct fabric *f, struct nic *n, const json_t *transport);
};

/* Where a queue pair sends, and by what its peer does */
struct reach {
	struct nic *peer;
	struct qp *peer_qp; /* NULL: not known, or not there yet */
	uint32_t number; /* of that */
	const json_t *transport;
	uint32_t mtu; /* 0: the smaller of both NICs' */
	uint32_t send_psn, expected_psn;
	bool scale_up;
};

/* cc_own() - The state of a queue pair's control */
static inline void *cc_own(struct qp *q)
{
	return q + 1;
}

/* qp_unreliable() - Is it an unreliable connection? */
static inline bool qp_unreliable(const struct qp *q)
{
	return q->own && q->own->unreliable;
}

extern const struct tx_ops qp_tx_ops;
void qp_ready(struct fabric *f, struct qp *q);
struct qp *qp_new(struct nic *n, struct qp_owner *owner);
struct qp *qp_numbered(struct nic *n, struct qp_owner *owner, uint32_t number);
struct qp *qp_find(struct nic *n, uint32_t number);
void qp_connected(struct fabric *f, struct qp *a, struct qp *b);
void qp_post_send(struct fabric *f, struct qp *q, const struct send_wr *wr);
void qp_post_recv(struct fabric *f, struct qp *q, const struct recv_wr *wr);
void qp_local(struct fabric *f, struct qp *q);
void qp_advance(struct fabric *f, struct qp *q, uint64_t n, bool ack);
struct send_wr *qp_request_of(const struct qp *q, uint64_t n);
void qp_acknowledged(struct fabric *f, struct qp *q, const struct roce_packet *pkt, const struct frame *fr);
bool qp_slow(const struct qp *q, uint32_t frame_bytes);
bool qp_has_new(const struct qp *q);
uint64_t qp_under_way(const struct qp *q);
bool qp_has_work(const struct fabric *f, const struct qp *q);
void qp_go_back(struct fabric *f, struct qp *q);
void trimmed_receive(struct fabric *f, struct nic *n, const struct roce_packet *pkt, struct frame *fr);
void trimmed_turn(struct fabric *f, struct qp *q);
void trimmed_told(struct fabric *f, struct qp *q, const struct roce_packet *pkt, const struct frame *fr);
void timer_look(struct fabric *f, struct qp *q);
void timer_set(struct fabric *f, struct qp *q, ps_t t);
bool qp_timer_set(struct qp *q, ps_t t);
void qp_timer(struct fabric *f, struct qp *q);
void qp_not_ready(struct fabric *f, struct qp *q, uint8_t syndrome);
void qp_receive_failed(struct fabric *f, struct qp *q, const struct recv_wr *wr, enum wc_status status);
void qp_fail(struct fabric *f, struct qp *q, enum wc_status why);
void qp_release(struct qp *q);
void qp_reach(struct fabric *f, struct qp *q, const struct reach *to);
void qp_restart(struct qp *q);
uint16_t qp_entropy(const struct qp *q, const struct nic *to, uint32_t number);
void qp_refuse(struct fabric *f, struct qp *q, uint8_t syndrome);
bool qp_barred(struct fabric *f, struct qp *q);

/* qp_expires() - When a queue pair that hears nothing from now on has waited long enough; PS_NEVER: never */
static inline ps_t qp_expires(const struct qp *q, ps_t now)
{
	ps_t timeout = q->own ? q->own->timeout : q->p->timeout;

	return timeout == PS_NEVER ? PS_NEVER : now + timeout;
}

#define SEND_WR(q, i) ((struct send_wr *)ring_at(&(q)->sq, sizeof(struct send_wr), (i)))
#define RECV_WR(q, i) ((struct recv_wr *)ring_at(&(q)->rq, sizeof(struct recv_wr), (i)))

bool qp_receive(struct fabric *f, struct qp *q, const struct roce_packet *pkt, struct frame *fr);
void qps_params_changed(struct fabric *f, struct nic *n);
void transport_receive(struct fabric *f, struct nic *n, const struct roce_packet *pkt, struct frame *fr, bool scale_up);
void qp_recv_usable(struct qp *q, uint32_t count);

#endif
