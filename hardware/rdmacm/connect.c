/* Connecting: asked for, accepted or rejected, and ended, by messages between two identifiers
 *
 *	connects         listens                   ends              is told
 *	REQ  ------------------>                   DREQ ------------------->
 *	     <------------------ REP, or REJ            <------------------- DREP
 *	RTU  ------------------>
 *
 * A datagram port has the first two alone: they say which queue pair it is.  The end of the TCP connection says what the
 * end of the peer says on a fabric.
 */
#include "rdmacm.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAGIC 0x31634252 /* "RBc1" */
#define NOBODY 0xff	 /* of depths: as much as there can be */
#define DEPTH 16

/* What a program may send with each, and is told to have got: its message's room on a fabric, padded with zeros */
static uint8_t room_of(const struct id *i, enum message_kind kind)
{
	if (is_datagram(i))
		return kind == REQ ? 180 : 136;
	switch (kind) {
	case REQ: return 56;
	case REP: return 196;
	case REJ: return 148;
	default: return 0;
	}
}

static struct message new(struct id *i, enum message_kind kind)
{
	return (struct message){
		.magic = MAGIC,
		.kind = (uint16_t)kind,
		.space = (uint16_t)i->id.ps,
		.qp_num = i->qp_num,
		.psn = i->psn,
		.responder_resources = i->responder_resources,
		.initiator_depth = i->initiator_depth,
		.retry_count = i->retry_count,
		.rnr_retry_count = i->rnr_retry_count,
		.ece_vendor = i->ece.vendor_id,
		.ece_options = i->ece.options,
		.private_length = room_of(i, kind),
	};
}

static int set_private(struct message *m, const void *data, size_t length)
{
	if (length > m->private_length)
		return EINVAL;
	if (length)
		memcpy(m->private, data, length);
	return 0;
}

/* Messages are few and small: if one does not fit any more, nobody listens at the other end */
static int tell(struct id *i, const struct message *m)
{
	ssize_t n = send(i->fd, m, sizeof *m, MSG_NOSIGNAL | MSG_DONTWAIT);

	return n == sizeof *m ? 0 : ECONNRESET;
}

static int simply_tell(struct id *i, enum message_kind kind, uint32_t status)
{
	struct message m = new(i, kind);

	m.status = status;
	return tell(i, &m);
}

static void over(struct id *i)
{
	i->state = OVER;
	if (i->fd >= 0)
		close(i->fd);
	i->fd = -1;
}

/* --- of the program --- */
static uint8_t at_most(uint8_t wanted, uint8_t most)
{
	return wanted < most ? wanted : most;
}

/* What both sides are told of a queue pair: it, or what the program says of its own */
static void take_parameters(struct id *i, const struct rdma_conn_param *p, uint8_t most_out, uint8_t most_in)
{
	i->qp_num = i->id.qp ? i->id.qp->qp_num : p ? p->qp_num : 0;
	i->psn = i->qp_num & 0xffffff;
	i->initiator_depth = at_most(p ? p->initiator_depth : NOBODY, most_out);
	i->responder_resources = at_most(p ? p->responder_resources : NOBODY, most_in);
}

static bool wrong_depth(const struct rdma_conn_param *p)
{
	return p && ((p->initiator_depth > DEPTH && p->initiator_depth != NOBODY) ||
		     (p->responder_resources > DEPTH && p->responder_resources != NOBODY));
}

int rdma_connect(struct rdma_cm_id *id, struct rdma_conn_param *p)
{
	struct id *i = (struct id *)id;
	struct sockaddr_in to;

	if (!id || i->state != ROUTED || wrong_depth(p))
		return cm_fail(EINVAL);
	pthread_mutex_lock(&cm_lock);
	take_parameters(i, p, DEPTH, DEPTH);
	i->retry_count = p ? p->retry_count & 7 : 7;
	i->rnr_retry_count = p ? p->rnr_retry_count & 7 : 7;
	i->out = new(i, REQ);
	i->out.srq = p && !id->qp ? p->srq : id->srq != NULL;
	i->out.flow_control = p ? p->flow_control : 1;
	int wrong = p && p->private_data_len ? set_private(&i->out, p->private_data, p->private_data_len) :
					       set_private(&i->out, i->connect, i->connect_length);
	to = id->route.addr.dst_sin;
	if (!wrong && connect(i->fd, (struct sockaddr *)&to, sizeof to) && errno != EINPROGRESS)
		wrong = errno;
	if (!wrong) {
		i->state = CONNECTING;
		i->asked = false;
		wrong = channel_watch(i, EPOLLOUT, false) ? 0 : errno;
	}
	pthread_mutex_unlock(&cm_lock);
	return wrong ? cm_fail(wrong) : cm_complete(i);
}

static int accept_it(struct id *i, const struct rdma_conn_param *p)
{
	struct message m;
	int wrong = 0;

	take_parameters(i, p, i->in.responder_resources, i->in.initiator_depth);
	if (i->id.qp && !is_datagram(i))
		wrong = qp_connect(i);
	m = new(i, REP);
	m.qkey = RDMA_UDP_QKEY;
	m.rnr_retry_count = p ? p->rnr_retry_count & 7 : 7;
	m.flow_control = p ? p->flow_control : 1;
	m.srq = p && !i->id.qp ? p->srq : i->id.srq != NULL;
	if (!wrong && p && p->private_data_len)
		wrong = set_private(&m, p->private_data, p->private_data_len);
	if (wrong)
		return wrong;
	i->state = is_datagram(i) ? CONNECTED : ACCEPTED;
	return tell(i, &m);
}

/* The other side's last word, of a program that brings its queue pair itself */
static int ready_to_use(struct id *i)
{
	if (i->state != ANSWERED)
		return EINVAL;
	i->state = CONNECTED;
	return simply_tell(i, RTU, 0);
}

int rdma_accept(struct rdma_cm_id *id, struct rdma_conn_param *p)
{
	struct id *i = (struct id *)id;
	int wrong;

	if (!id || wrong_depth(p))
		return cm_fail(EINVAL);
	pthread_mutex_lock(&cm_lock);
	wrong = i->state == REQUESTED ? accept_it(i, p) : ready_to_use(i);
	bool waits = i->state == ACCEPTED;
	pthread_mutex_unlock(&cm_lock);
	return wrong ? cm_fail(wrong) : waits ? cm_complete(i) : 0;
}

int rdma_establish(struct rdma_cm_id *id)
{
	struct id *i = (struct id *)id;

	if (!id || id->qp)
		return cm_fail(EINVAL);
	pthread_mutex_lock(&cm_lock);
	int wrong = ready_to_use(i);
	pthread_mutex_unlock(&cm_lock);
	return wrong ? cm_fail(wrong) : 0;
}

int rdma_reject(struct rdma_cm_id *id, const void *data, uint8_t length)
{
	struct id *i = (struct id *)id;

	if (!id || (i->state != REQUESTED && i->state != ANSWERED))
		return cm_fail(EINVAL);
	pthread_mutex_lock(&cm_lock);
	struct message m = new(i, REJ);
	m.status = REJ_CONSUMER;
	int wrong = set_private(&m, data, length);
	if (!wrong) {
		tell(i, &m);
		over(i);
	}
	pthread_mutex_unlock(&cm_lock);
	return wrong ? cm_fail(wrong) : 0;
}

int rdma_reject_ece(struct rdma_cm_id *id, const void *data, uint8_t length)
{
	return rdma_reject(id, data, length);
}

int rdma_disconnect(struct rdma_cm_id *id)
{
	struct id *i = (struct id *)id;

	if (!id || (i->state != CONNECTED && i->state != ACCEPTED && i->state != ANSWERED && i->state != LEFT) || is_datagram(i))
		return cm_fail(EINVAL);
	pthread_mutex_lock(&cm_lock);
	qp_break(i);
	bool waits = i->state != LEFT;
	if (i->state == LEFT) {
		simply_tell(i, DREP, 0);
		over(i);
	} else {
		simply_tell(i, DREQ, 0);
		i->state = LEAVING;
	}
	pthread_mutex_unlock(&cm_lock);
	return waits ? cm_complete(i) : 0;
}

/* A message has come by the connection already: so there is one */
int rdma_notify(struct rdma_cm_id *id, enum ibv_event_type event)
{
	struct id *i = (struct id *)id;

	if (!id || event != IBV_EVENT_COMM_EST)
		return cm_fail(EINVAL);
	pthread_mutex_lock(&cm_lock);
	if (i->state == ACCEPTED) {
		i->state = CONNECTED;
		event_add(i, RDMA_CM_EVENT_ESTABLISHED, 0, NULL);
	}
	pthread_mutex_unlock(&cm_lock);
	return 0;
}

/* --- of the other side --- */
static void accept_sockets(struct id *listener)
{
	struct sockaddr_in from;
	socklen_t room = sizeof from;
	int fd;

	while ((fd = accept4(listener->fd, (struct sockaddr *)&from, &room, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
		struct id *i = id_new((struct channel *)listener->id.channel, listener->id.ps);
		if (!i) {
			close(fd);
			return;
		}
		i->fd = fd;
		i->state = INCOMING;
		i->listener = listener;
		i->tos = listener->tos;
		i->ack_timeout = listener->ack_timeout;
		i->id.context = listener->id.context;
		i->id.route.addr.src_sin = listener->id.route.addr.src_sin;
		i->id.route.addr.src_sin.sin_addr.s_addr = railbed_address(railbed_rank());
		i->id.route.addr.dst_sin = from;
		room = sizeof from;
		if (!channel_watch(i, EPOLLIN, false))
			rdma_destroy_id(&i->id);
	}
}

static void requested(struct id *i)
{
	const struct message *m = &i->in;

	if (m->kind != REQ || m->space != i->id.ps) {
		rdma_destroy_id(&i->id);
		return;
	}
	id_use_device(i);
	route_set_peer(i);
	if (route_set_path(i)) {
		rdma_destroy_id(&i->id);
		return;
	}
	i->state = REQUESTED;
	i->retry_count = m->retry_count & 7;
	if (i->listener->sync && rdma_migrate_id(&i->id, NULL)) {
		rdma_destroy_id(&i->id);
		return;
	}
	event_add(i, RDMA_CM_EVENT_CONNECT_REQUEST, 0, m);
}

/* The answer to our REQ */
static void answered(struct id *i)
{
	const struct message *m = &i->in;
	int wrong;

	if (m->kind == REJ) {
		over(i);
		event_add(i, RDMA_CM_EVENT_REJECTED, (int)m->status, m);
		return;
	}
	if (is_datagram(i)) {
		i->state = CONNECTED;
		event_add(i, RDMA_CM_EVENT_ESTABLISHED, 0, m);
		return;
	}
	/* of what we asked for, the peer may grant less */
	i->initiator_depth = at_most(i->initiator_depth, m->responder_resources);
	i->responder_resources = at_most(i->responder_resources, m->initiator_depth);
	if (!i->id.qp) {
		i->state = ANSWERED;
		event_add(i, RDMA_CM_EVENT_CONNECT_RESPONSE, 0, m);
		return;
	}
	wrong = qp_connect(i);
	if (wrong) {
		simply_tell(i, REJ, REJ_CONSUMER);
		over(i);
		event_add(i, RDMA_CM_EVENT_CONNECT_ERROR, -wrong, NULL);
		return;
	}
	simply_tell(i, RTU, 0);
	i->state = CONNECTED;
	event_add(i, RDMA_CM_EVENT_ESTABLISHED, 0, m);
}

static void heard(struct id *i)
{
	const struct message *m = &i->in;

	switch (i->state) {
	case INCOMING: requested(i); return;
	case CONNECTING:
		if (m->kind == REP || m->kind == REJ) {
			i->peer_qp = m->qp_num;
			i->peer_psn = m->psn;
			answered(i);
		}
		return;
	case ACCEPTED:
		if (m->kind == RTU) {
			i->state = CONNECTED;
			event_add(i, RDMA_CM_EVENT_ESTABLISHED, 0, NULL);
			return;
		}
		if (m->kind == REJ) {
			over(i);
			event_add(i, RDMA_CM_EVENT_REJECTED, (int)m->status, m);
			return;
		}
		break;
	case LEAVING:
		if (m->kind == DREP || m->kind == DREQ) {
			over(i);
			event_add(i, RDMA_CM_EVENT_DISCONNECTED, 0, NULL);
		}
		return;
	default: break;
	}
	if (m->kind == DREQ && (i->state == ACCEPTED || i->state == CONNECTED || i->state == ANSWERED)) {
		i->state = LEFT;
		event_add(i, RDMA_CM_EVENT_DISCONNECTED, 0, NULL);
	}
}

/* The peer, or whoever was to be it, is gone */
static void gone(struct id *i, int wrong)
{
	enum state was = i->state;

	if (was == INCOMING) {
		rdma_destroy_id(&i->id);
		return;
	}
	over(i);
	if (was == CONNECTING && wrong == ECONNREFUSED)
		event_add(i, RDMA_CM_EVENT_REJECTED, REJ_NO_SERVICE, NULL);
	else if (was == CONNECTING)
		event_add(i, RDMA_CM_EVENT_UNREACHABLE, -(wrong ? wrong : ETIMEDOUT), NULL);
	else if (was == REQUESTED)
		event_add(i, RDMA_CM_EVENT_REJECTED, REJ_TIMEOUT, NULL);
	else if (was != LEFT && !is_datagram(i))
		event_add(i, RDMA_CM_EVENT_DISCONNECTED, 0, NULL);
}

static void ask(struct id *i)
{
	socklen_t room = sizeof(int);
	int wrong = 0;

	if (getsockopt(i->fd, SOL_SOCKET, SO_ERROR, &wrong, &room) || (!wrong && tell(i, &i->out)))
		wrong = wrong ? wrong : errno;
	if (wrong) {
		gone(i, wrong);
		return;
	}
	i->asked = true;
	channel_watch(i, EPOLLIN, true);
}

/* A message from elsewhere is one only if all of it is as it must be */
static bool is_whole(const struct id *i)
{
	const struct message *m = &i->in;

	return m->magic == MAGIC && m->kind >= REQ && m->kind <= DREP && m->private_length == room_of(i, m->kind);
}

/* id_progress() - Something has come on an identifier's socket, or it is connected.  Afterwards it may not be there */
void id_progress(struct id *i, uint32_t events)
{
	if (i->state == LISTENING) {
		accept_sockets(i);
		return;
	}
	if (i->state == CONNECTING && !i->asked) {
		if (events & (EPOLLOUT | EPOLLERR | EPOLLHUP))
			ask(i);
		return;
	}
	if (i->fd < 0)
		return;
	ssize_t n = recv(i->fd, (uint8_t *)&i->in + i->got, sizeof i->in - i->got, MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	i->got += n > 0 ? (size_t)n : 0;
	if (n > 0 && i->got < sizeof i->in)
		return;
	i->got = 0;
	if (n <= 0 || !is_whole(i)) {
		gone(i, n < 0 ? errno : 0);
		return;
	}
	if (i->in.kind == REQ || i->in.kind == REP) {
		i->peer_qp = i->in.qp_num;
		i->peer_psn = i->in.psn;
		i->peer_ece = (struct ibv_ece){.vendor_id = i->in.ece_vendor, .options = i->in.ece_options};
	}
	heard(i);
}
