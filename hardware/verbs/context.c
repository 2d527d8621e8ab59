/* A device that is open: its context, asynchronous events, protection domains */
#include "railbed.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

struct context {
	struct verbs_context v;
	int events; /* what is written here can be read at async_fd */
};

static struct context *context_of(struct ibv_context *c)
{
	return (struct context *)verbs_get_ctx(c);
}

struct ibv_context *ibv_open_device(struct ibv_device *d)
{
	struct context *whole = d && place() ? calloc(1, sizeof *whole) : NULL;
	int ends[2];

	if (!whole || !session_pipe(ends)) {
		free(whole);
		errno = d && place() ? ENOMEM : ENODEV;
		return NULL;
	}
	struct verbs_context *v = &whole->v;
	whole->events = ends[1];
	v->sz = sizeof *v;
	device_operations(v);
	v->create_cq_ex = cq_create_ex;
	v->create_qp_ex = qp_create_ex;
	v->advise_mr = demand_advise;
	v->alloc_dm = dm_alloc;
	v->free_dm = dm_free;
	v->reg_dm_mr = dm_register;
	v->alloc_parent_domain = pd_parent;
	v->alloc_td = td_alloc;
	v->dealloc_td = td_dealloc;
	v->context.abi_compat = __VERBS_ABI_IS_EXTENDED;
	v->context.device = d;
	v->context.cmd_fd = eventfd(0, EFD_CLOEXEC);
	v->context.async_fd = ends[0];
	v->context.num_comp_vectors = 1;
	v->context.ops.alloc_mw = window_alloc;
	v->context.ops.bind_mw = window_bind;
	v->context.ops.dealloc_mw = window_dealloc;
	v->context.ops.poll_cq = cq_poll;
	v->context.ops.req_notify_cq = cq_notify;
	v->context.ops.post_send = post_send;
	v->context.ops.post_recv = post_recv;
	v->context.ops.post_srq_recv = post_shared_recv;
	pthread_mutex_init(&v->context.mutex, NULL);
	return &v->context;
}

int ibv_close_device(struct ibv_context *c)
{
	syscall(SYS_close, c->async_fd);
	syscall(SYS_close, c->cmd_fd);
	syscall(SYS_close, context_of(c)->events);
	pthread_mutex_destroy(&c->mutex);
	free(context_of(c));
	return 0;
}

/* async_add() - Something has happened that belongs to no request */
void async_add(struct ibv_context *c, const struct ibv_async_event *e)
{
	(void)!syscall(SYS_write, context_of(c)->events, e, sizeof *e);
}

/* Whose an event is */
static enum { OF_DEVICE, OF_QP, OF_SRQ } whose(const struct ibv_async_event *e)
{
	switch (e->event_type) {
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_QP_LAST_WQE_REACHED: return OF_QP;
	case IBV_EVENT_SRQ_LIMIT_REACHED: return OF_SRQ;
	default: return OF_DEVICE;
	}
}

/* What an event is of may be gone by now: nobody hears of it then */
int ibv_get_async_event(struct ibv_context *c, struct ibv_async_event *event)
{
	int fd = c->async_fd;
	bool there = false;

	while (!there) {
		if (session_read(fd, event, sizeof *event) != sizeof *event)
			return -1;
		session_lock();
		there = whose(event) == OF_QP ? qp_told(event->element.qp) : whose(event) == OF_SRQ ? shared_told(event->element.srq) : true;
		session_unlock();
	}
	return 0;
}

#define ACKNOWLEDGE(element)                                                                                                \
	do {                                                                                                                \
		pthread_mutex_lock(&(element)->mutex);                                                                      \
		(element)->events_completed++;                                                                              \
		pthread_cond_signal(&(element)->cond);                                                                      \
		pthread_mutex_unlock(&(element)->mutex);                                                                    \
	} while (0)

void ibv_ack_async_event(struct ibv_async_event *event)
{
	if (whose(event) == OF_QP)
		ACKNOWLEDGE(event->element.qp);
	else if (whose(event) == OF_SRQ)
		ACKNOWLEDGE(event->element.srq);
}
