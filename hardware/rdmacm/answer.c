/* What follows from what the other side says: requests, answers, the end */
#include "rdmacm.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

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
		id_over(i);
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
		id_tell(i, REJ, REJ_CONSUMER);
		id_over(i);
		event_add(i, RDMA_CM_EVENT_CONNECT_ERROR, -wrong, NULL);
		return;
	}
	id_tell(i, RTU, 0);
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
			id_over(i);
			event_add(i, RDMA_CM_EVENT_REJECTED, (int)m->status, m);
			return;
		}
		break;
	case LEAVING:
		if (m->kind == DREP || m->kind == DREQ) {
			id_over(i);
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
	id_over(i);
	if (was == CONNECTING && wrong == ECONNREFUSED)
		event_add(i, RDMA_CM_EVENT_REJECTED, REJ_NO_SERVICE, NULL);
	else if (was == CONNECTING)
		event_add(i, RDMA_CM_EVENT_UNREACHABLE, -(wrong ? wrong : ETIMEDOUT), NULL);
	else if (was == REQUESTED)
		event_add(i, RDMA_CM_EVENT_REJECTED, REJ_TIMEOUT, NULL);
	else if (!is_datagram(i)) {
		if (was != LEAVING)
			i->state = LEFT; /* the program has still to disconnect, as after a DREQ */
		if (was != LEFT)
			event_add(i, RDMA_CM_EVENT_DISCONNECTED, 0, NULL);
	}
}

static void ask(struct id *i)
{
	socklen_t room = sizeof(int);
	int wrong = 0;

	if (getsockopt(i->fd, SOL_SOCKET, SO_ERROR, &wrong, &room) || (!wrong && message_tell(i, &i->out)))
		wrong = wrong ? wrong : errno;
	if (wrong == ECONNREFUSED && connect_rest(i))
		return;
	if (wrong) {
		gone(i, wrong);
		return;
	}
	i->asked = true;
	channel_watch(i, EPOLLIN, true);
}

/* id_progress() - Something has come on an identifier's socket, or it is connected.  Afterwards it may not be there */
void id_progress(struct id *i, uint32_t events)
{
	if (i->state == LISTENING) {
		accept_sockets(i);
		return;
	}
	if (i->state == CONNECTING && i->rests) {
		int wrong = connect_again(i);
		if (wrong)
			gone(i, wrong);
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
	if (n <= 0 || !message_is_whole(i)) {
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
