/* Event channels: what has happened, told in turn, and acknowledged */
#include "rdmacm.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

pthread_mutex_t cm_lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
pthread_cond_t cm_acknowledged = PTHREAD_COND_INITIALIZER;

/* cm_fail() - As calls of this library fail */
int cm_fail(int error)
{
	errno = error;
	return -1;
}

static struct channel *channel_of(struct rdma_event_channel *c)
{
	return (struct channel *)c;
}

struct rdma_event_channel *rdma_create_event_channel(void)
{
	struct channel *c = calloc(1, sizeof *c);
	struct epoll_event bell = {.events = EPOLLIN};

	if (!c)
		return NULL;
	railbed_emulated(); /* the session is there: a thread may wait for events before anything else is done */
	c->channel.fd = epoll_create1(EPOLL_CLOEXEC);
	c->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (c->channel.fd < 0 || c->bell < 0 || epoll_ctl(c->channel.fd, EPOLL_CTL_ADD, c->bell, &bell)) {
		int wrong = errno;
		rdma_destroy_event_channel(&c->channel);
		errno = wrong;
		return NULL;
	}
	return &c->channel;
}

/* Who waits for a channel's events when it is destroyed waits for ever, as in a kernel, and so does who asks for them just
 * after that: programs end with such threads.  So what is left of a channel is never freed.
 */
void rdma_destroy_event_channel(struct rdma_event_channel *channel)
{
	struct channel *c = channel_of(channel);
	uint64_t one = 1;

	pthread_mutex_lock(&cm_lock);
	c->destroyed = true;
	while (c->events) {
		struct event *e = c->events;
		c->events = e->next;
		free(e);
	}
	if (c->users) {
		(void)!write(c->bell, &one, sizeof one);
	} else {
		if (c->channel.fd >= 0)
			close(c->channel.fd);
		if (c->bell >= 0)
			close(c->bell);
		c->channel.fd = c->bell = -1;
	}
	pthread_mutex_unlock(&cm_lock);
}

/* channel_watch() - What of an identifier's socket is looked for; false, with errno, if there are too many */
bool channel_watch(struct id *i, uint32_t events, bool is_watched)
{
	struct epoll_event e = {.events = events, .data.ptr = i};

	return !epoll_ctl(i->id.channel->fd, is_watched ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, i->fd, &e);
}

void channel_add(struct channel *c, struct id *i)
{
	i->id.channel = &c->channel;
	i->next = c->ids;
	c->ids = i;
}

void channel_remove(struct id *i)
{
	struct id **at = &channel_of(i->id.channel)->ids;

	while (*at && *at != i)
		at = &(*at)->next;
	if (*at)
		*at = i->next;
}

static void ring(struct channel *c)
{
	uint64_t one = 1, was;

	if (c->events)
		(void)!write(c->bell, &one, sizeof one);
	else
		(void)!read(c->bell, &was, sizeof was);
}

static void add(struct channel *c, struct event *e)
{
	struct event **at = &c->events;

	while (*at)
		at = &(*at)->next;
	*at = e;
	ring(c);
}

static void set_parameters(struct event *e, const struct message *m)
{
	struct rdma_conn_param *p = &e->event.param.conn;
	bool asks = e->event.event == RDMA_CM_EVENT_CONNECT_REQUEST;

	memcpy(e->private, m->private, sizeof e->private);
	if (is_datagram((struct id *)e->event.id)) {
		e->event.param.ud = (struct rdma_ud_param){
			.private_data = m->private_length ? e->private : NULL,
			.private_data_len = m->private_length,
			.qp_num = m->qp_num,
			.qkey = m->qkey,
		};
		route_av((struct id *)e->event.id, &e->event.param.ud.ah_attr);
		return;
	}
	*p = (struct rdma_conn_param){
		.private_data = m->private_length ? e->private : NULL,
		.private_data_len = m->private_length,
		/* what the other begins, we answer */
		.responder_resources = m->initiator_depth,
		.initiator_depth = m->responder_resources,
		.flow_control = m->flow_control,
		.retry_count = asks ? m->retry_count : 0,
		.rnr_retry_count = m->rnr_retry_count,
		.srq = m->srq,
		.qp_num = m->qp_num,
	};
}

/* event_add() - Something has happened to an identifier; @m: the message that said so, or NULL
 *
 * That somebody wants to connect is told by the one that listens.
 */
void event_add(struct id *i, enum rdma_cm_event_type type, int status, const struct message *m)
{
	struct event *e = calloc(1, sizeof *e);

	if (!e)
		return;
	e->counted = type == RDMA_CM_EVENT_CONNECT_REQUEST ? i->listener : i;
	e->event = (struct rdma_cm_event){.id = &i->id, .event = type, .status = status};
	if (type == RDMA_CM_EVENT_CONNECT_REQUEST)
		e->event.listen_id = &i->listener->id;
	if (m)
		set_parameters(e, m);
	add(channel_of(e->counted->id.channel), e);
}

/* events_forget() - An identifier goes: what nobody has heard of it is not told any more */
void events_forget(struct id *i)
{
	struct channel *c = channel_of(i->id.channel);

	for (struct event **at = &c->events; *at;) {
		struct event *e = *at;
		if (e->event.id != &i->id && e->counted != i) {
			at = &e->next;
			continue;
		}
		*at = e->next;
		if (e->event.id != &i->id) /* it wanted to connect, and nobody will hear of it */
			rdma_destroy_id(e->event.id);
		free(e);
		at = &c->events;
	}
	ring(c);
}

/* events_move() - An identifier has another channel: what was not heard of it is told there */
void events_move(struct id *i, struct channel *from, struct channel *to)
{
	for (struct event **at = &from->events; *at;) {
		struct event *e = *at;
		if (e->counted != i) {
			at = &e->next;
			continue;
		}
		*at = e->next;
		e->next = NULL;
		add(to, e);
	}
	ring(from);
}

/* Take in what has come, or wait for it.  False, with errno, if nothing had */
static bool progress(struct channel *c, bool blocks)
{
	struct epoll_event events[16];
	int n = epoll_wait(c->channel.fd, events, 16, blocks ? -1 : 0);

	if (n < 1) {
		errno = n ? errno : EAGAIN;
		return false;
	}
	pthread_mutex_lock(&cm_lock);
	for (int k = 0; k < n; k++) {
		struct id *i = c->ids;
		while (i && i != events[k].data.ptr)
			i = i->next; /* another thread may have destroyed it */
		if (i)
			id_progress(i, events[k].events);
	}
	pthread_mutex_unlock(&cm_lock);
	return true;
}

static void unlock(void *lock)
{
	pthread_mutex_unlock(lock);
}

static void wait_for_ever(void)
{
	static pthread_cond_t never = PTHREAD_COND_INITIALIZER;

	pthread_cleanup_push(unlock, &cm_lock);
	for (;;)
		pthread_cond_wait(&never, &cm_lock);
	pthread_cleanup_pop(1);
}

/* The next event that there is, or NULL; under the lock */
static struct event *next(struct channel *c)
{
	struct event *e = c->events;

	if (c->destroyed)
		wait_for_ever();
	if (e) {
		c->events = e->next;
		e->counted->events++;
		ring(c);
	}
	return e;
}

int rdma_get_cm_event(struct rdma_event_channel *channel, struct rdma_cm_event **event)
{
	struct channel *c = channel_of(channel);
	struct event *e;

	if (!event)
		return cm_fail(EINVAL);
	pthread_mutex_lock(&cm_lock);
	c->users++;
	while (!(e = next(c))) {
		pthread_mutex_unlock(&cm_lock);
		bool there = progress(c, !(fcntl(c->channel.fd, F_GETFL) & O_NONBLOCK));
		pthread_mutex_lock(&cm_lock);
		if (!there && !c->destroyed)
			break;
	}
	c->users--;
	pthread_mutex_unlock(&cm_lock);
	if (!e)
		return -1;
	*event = &e->event;
	return 0;
}

int rdma_ack_cm_event(struct rdma_cm_event *event)
{
	struct event *e = (struct event *)event;

	if (!event)
		return cm_fail(EINVAL);
	pthread_mutex_lock(&cm_lock);
	e->counted->events--;
	pthread_cond_broadcast(&cm_acknowledged);
	pthread_mutex_unlock(&cm_lock);
	free(e);
	return 0;
}

/* cm_complete() - A call of an identifier without a channel ends with its event */
int cm_complete(struct id *i)
{
	if (!i->sync)
		return 0;
	if (i->id.event)
		rdma_ack_cm_event(i->id.event);
	i->id.event = NULL;
	if (rdma_get_cm_event(i->id.channel, &i->id.event))
		return -1;
	int status = i->id.event->status;
	if (!status)
		return 0;
	return cm_fail(i->id.event->event == RDMA_CM_EVENT_REJECTED ? ECONNREFUSED : status < 0 ? -status : status);
}
