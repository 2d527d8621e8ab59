/* Connecting: asked for, accepted or rejected, and ended, by messages between two identifiers
 *
 *	connects         listens                   ends              is told
 *	REQ  ------------------>                   DREQ ------------------->
 *	     <------------------ REP, or REJ            <------------------- DREP
 *	RTU  ------------------>
 *
 * A datagram port has the first two alone: they say which queue pair it is.  The end of the TCP connection says what the
 * end of the peer says on a fabric.
 *
 * Where nobody listens that is said at once.  With the real clock how long a peer takes until it listens is up to the
 * machine: there one that is refused asks again, for as long as the program has given for finding its route.
 */
#include "rdmacm.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define NOBODY 0xff	 /* of depths: as much as there can be */
#define DEPTH 16
#define REST_NS 10000000

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

static int64_t machine_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

/* connect_rest() - Nobody listens where it wants to connect.  Return: whether it tries again in a while */
bool connect_rest(struct id *i)
{
	static const struct itimerspec rest = {.it_value.tv_nsec = REST_NS};

	if (railbed_emulated() || machine_ns() >= i->until_ns)
		return false;
	close(i->fd);
	i->fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	i->rests = i->fd >= 0 && !timerfd_settime(i->fd, 0, &rest, NULL) && channel_watch(i, EPOLLIN, false);
	return i->rests;
}

/* Its socket connects from now on; 0, or an error */
static int begin(struct id *i)
{
	struct sockaddr_in to = i->id.route.addr.dst_sin;

	i->asked = i->rests = false;
	if (connect(i->fd, (struct sockaddr *)&to, sizeof to) && errno != EINPROGRESS)
		return errno == ECONNREFUSED && connect_rest(i) ? 0 : errno;
	return channel_watch(i, EPOLLOUT, false) ? 0 : errno;
}

/* connect_again() - It has rested; 0, or an error */
int connect_again(struct id *i)
{
	struct sockaddr_in from = i->id.route.addr.src_sin;

	close(i->fd);
	i->fd = -1;
	return id_bind(i, &from) ? errno : begin(i);
}

int rdma_connect(struct rdma_cm_id *id, struct rdma_conn_param *p)
{
	struct id *i = (struct id *)id;

	if (!id || i->state != ROUTED || wrong_depth(p))
		return cm_fail(EINVAL);
	pthread_mutex_lock(&cm_lock);
	take_parameters(i, p, DEPTH, DEPTH);
	i->retry_count = p ? p->retry_count & 7 : 7;
	i->rnr_retry_count = p ? p->rnr_retry_count & 7 : 7;
	i->out = message_new(i, REQ);
	i->out.srq = p && !id->qp ? p->srq : id->srq != NULL;
	i->out.flow_control = p ? p->flow_control : 1;
	int wrong = p && p->private_data_len ? message_set_private(&i->out, p->private_data, p->private_data_len) :
					       message_set_private(&i->out, i->connect, i->connect_length);
	if (!wrong) {
		i->state = CONNECTING;
		i->until_ns = machine_ns() + i->patience_ns;
		wrong = begin(i);
		i->state = wrong ? ROUTED : CONNECTING;
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
	m = message_new(i, REP);
	m.qkey = RDMA_UDP_QKEY;
	m.rnr_retry_count = p ? p->rnr_retry_count & 7 : 7;
	m.flow_control = p ? p->flow_control : 1;
	m.srq = p && !i->id.qp ? p->srq : i->id.srq != NULL;
	if (!wrong && p && p->private_data_len)
		wrong = message_set_private(&m, p->private_data, p->private_data_len);
	if (wrong)
		return wrong;
	i->state = is_datagram(i) ? CONNECTED : ACCEPTED;
	return message_tell(i, &m);
}

/* The other side's last word, of a program that brings its queue pair itself */
static int ready_to_use(struct id *i)
{
	if (i->state != ANSWERED)
		return EINVAL;
	i->state = CONNECTED;
	return id_tell(i, RTU, 0);
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
	struct message m = message_new(i, REJ);
	m.status = REJ_CONSUMER;
	int wrong = message_set_private(&m, data, length);
	if (!wrong) {
		message_tell(i, &m);
		id_over(i);
	}
	pthread_mutex_unlock(&cm_lock);
	return wrong ? cm_fail(wrong) : 0;
}

int rdma_reject_ece(struct rdma_cm_id *id, const void *data, uint8_t length)
{
	return rdma_reject(id, data, length);
}

/* Whatever has become of the connection meanwhile, what is posted is flushed: a program's thread may wait for that alone */
int rdma_disconnect(struct rdma_cm_id *id)
{
	struct id *i = (struct id *)id;

	if (!id || is_datagram(i))
		return cm_fail(EINVAL);
	pthread_mutex_lock(&cm_lock);
	enum state was = i->state;
	qp_break(i);
	if (was == LEFT) {
		id_tell(i, DREP, 0);
		id_over(i);
	} else if (was == CONNECTED || was == ACCEPTED || was == ANSWERED) {
		id_tell(i, DREQ, 0);
		i->state = LEAVING;
	}
	bool waits = i->state == LEAVING && was != LEAVING;
	pthread_mutex_unlock(&cm_lock);
	if (waits)
		return cm_complete(i);
	return was == LEFT ? 0 : cm_fail(EINVAL);
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
