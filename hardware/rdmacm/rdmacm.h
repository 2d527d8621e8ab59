/* What the files of this library share
 *
 * librdmacm.so.1 for programs in a rank's container: connections of the emulated NIC by IP addresses and ports.  A
 * message of the connection manager is a `struct message` on a TCP connection, one connection for each identifier; with
 * the virtual clock that is the management network, like all TCP.  What follows from messages happens when the program
 * asks for events: an event channel's descriptor is an epoll of its identifiers' sockets, and of a bell that rings while
 * events are there.  Whoever changes anything holds cm_lock.
 */
#ifndef RDMACM_H
#define RDMACM_H

#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "clock.h"

#define PORT 1
#define PRIVATE_MAX 224

enum message_kind { REQ = 1, REP, RTU, REJ, DREQ, DREP };
enum reject { REJ_TIMEOUT = 4, REJ_NO_SERVICE = 8, REJ_CONSUMER = 28 }; /* as the InfiniBand specification numbers them */

struct message {
	uint32_t magic;
	uint16_t kind, space; /* space: rdma_port_space of a REQ */
	uint32_t qp_num, psn, qkey, status;
	uint32_t ece_vendor, ece_options;
	uint8_t responder_resources, initiator_depth, flow_control, retry_count, rnr_retry_count, srq, private_length, zero;
	uint8_t private[PRIVATE_MAX];
};

struct event {
	struct rdma_cm_event event; /* first: what the program gets */
	struct id *counted;	    /* who is not destroyed before it is acknowledged */
	uint8_t private[PRIVATE_MAX];
	struct event *next;
};

struct channel {
	struct rdma_event_channel channel; /* first */
	int bell;
	struct event *events;
	struct id *ids;
	unsigned users; /* threads that ask for its events */
	bool destroyed;
};

enum state {
	IDLE,
	BOUND,
	LISTENING,
	ADDRESSED,  /* resolve_addr has come to its end */
	ROUTED,	    /* resolve_route, too */
	INCOMING,   /* accepted by the socket, its REQ is not there yet: no program knows of it */
	REQUESTED,  /* a REQ was heard */
	CONNECTING, /* a REQ is sent, or will be as soon as there is a connection */
	ANSWERED,   /* a REP was heard, and the program has to say the RTU */
	ACCEPTED,   /* a REP is sent */
	CONNECTED,
	LEAVING, /* a DREQ is sent */
	LEFT,	 /* a DREQ was heard */
	OVER,
};

struct id {
	struct rdma_cm_id id; /* first */
	enum state state;
	int fd;
	bool asked; /* of one that connects: its REQ is sent */
	bool rests; /* likewise: it was refused, and `fd` is a timer until it tries again */
	int64_t patience_ns, until_ns; /* how long it looks for its peer, and by the machine's clock until when (connect.c) */
	bool sync;  /* has a channel of its own, and its calls wait for their events */
	bool own_cqs;
	uint32_t events; /* that were handed out and not acknowledged */
	struct id *listener;
	struct message in, out; /* what is coming, so far; the REQ */
	size_t got;
	uint32_t qp_num, psn, peer_qp, peer_psn; /* as the messages said */
	uint8_t responder_resources, initiator_depth, retry_count, rnr_retry_count, tos, ack_timeout;
	struct ibv_ece ece, peer_ece;
	struct ibv_qp_init_attr *attr; /* of rdma_create_ep, for those that are accepted */
	uint8_t connect[PRIVATE_MAX];  /* likewise what rdma_connect says */
	size_t connect_length;
	struct id *next;
};

extern pthread_mutex_t cm_lock;
int cm_fail(int error);

/* --- channel.c --- */
extern pthread_cond_t cm_acknowledged;
void event_add(struct id *i, enum rdma_cm_event_type type, int status, const struct message *m);
void events_forget(struct id *i);
void events_move(struct id *i, struct channel *from, struct channel *to);
void channel_add(struct channel *c, struct id *i);
void channel_remove(struct id *i);
bool channel_watch(struct id *i, uint32_t events, bool is_watched);
int cm_complete(struct id *i);

/* --- id.c --- */
struct ibv_context *cm_device(void);
struct ibv_pd *cm_domain(void);
struct id *id_new(struct channel *c, enum rdma_port_space space);
int id_bind(struct id *i, const struct sockaddr_in *to);
void id_use_device(struct id *i);
bool is_datagram(const struct id *i);

/* --- message.c --- */
uint8_t message_room(const struct id *i, enum message_kind kind);
struct message message_new(struct id *i, enum message_kind kind);
int message_set_private(struct message *m, const void *data, size_t length);
int message_tell(struct id *i, const struct message *m);
int id_tell(struct id *i, enum message_kind kind, uint32_t status);
void id_over(struct id *i);
bool message_is_whole(const struct id *i);

/* What one side has said, and the other grants */
static inline uint8_t at_most(uint8_t wanted, uint8_t most)
{
	return wanted < most ? wanted : most;
}

/* --- answer.c --- */
void id_progress(struct id *i, uint32_t events);

/* --- connect.c --- */
bool connect_rest(struct id *i);
int connect_again(struct id *i);

/* --- queue_pair.c --- */
int qp_connect(struct id *i);
void qp_break(struct id *i);

/* --- route.c --- */
int route_set_path(struct id *i);
void route_set_peer(struct id *i);
void route_av(const struct id *i, struct ibv_ah_attr *a);

#endif
