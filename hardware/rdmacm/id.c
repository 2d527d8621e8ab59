/* Identifiers: made, bound, given options, destroyed; and the device that all of them use */
#include "rdmacm.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

static struct ibv_context *device;
static struct ibv_pd *domain;

/* cm_device() - The NIC, opened once; NULL, with errno: there is none */
struct ibv_context *cm_device(void)
{
	struct ibv_device **list;

	pthread_mutex_lock(&cm_lock);
	if (!device && (list = ibv_get_device_list(NULL))) {
		device = list[0] ? ibv_open_device(list[0]) : NULL;
		ibv_free_device_list(list);
		if (!device)
			errno = ENODEV;
	}
	pthread_mutex_unlock(&cm_lock);
	return device;
}

/* cm_domain() - The protection domain of those for whom the program names none */
struct ibv_pd *cm_domain(void)
{
	pthread_mutex_lock(&cm_lock);
	if (!domain && cm_device())
		domain = ibv_alloc_pd(device);
	pthread_mutex_unlock(&cm_lock);
	return domain;
}

struct ibv_context **rdma_get_devices(int *count)
{
	struct ibv_context **list = cm_device() ? calloc(2, sizeof *list) : NULL;

	if (list)
		list[0] = device;
	if (count)
		*count = list != NULL;
	return list;
}

void rdma_free_devices(struct ibv_context **list)
{
	free(list);
}

bool is_datagram(const struct id *i)
{
	return i->id.ps == RDMA_PS_UDP;
}

struct id *id_new(struct channel *c, enum rdma_port_space space)
{
	struct id *i = calloc(1, sizeof *i);

	if (!i)
		return NULL;
	i->fd = -1;
	i->id.ps = space;
	i->id.qp_type = is_datagram(i) ? IBV_QPT_UD : IBV_QPT_RC;
	i->retry_count = i->rnr_retry_count = 7;
	channel_add(c, i);
	return i;
}

int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id, void *context, enum rdma_port_space space)
{
	struct rdma_event_channel *own = NULL;

	if (!id || (space != RDMA_PS_TCP && space != RDMA_PS_UDP))
		return cm_fail(id ? EPROTONOSUPPORT : EINVAL);
	if (!cm_device())
		return -1;
	if (!channel && !(own = rdma_create_event_channel()))
		return -1;
	pthread_mutex_lock(&cm_lock);
	struct id *i = id_new((struct channel *)(own ? own : channel), space);
	if (i) {
		i->sync = own;
		i->id.context = context;
		*id = &i->id;
	}
	pthread_mutex_unlock(&cm_lock);
	if (!i && own)
		rdma_destroy_event_channel(own);
	return i ? 0 : cm_fail(ENOMEM);
}

/* id_use_device() - It is known by now that it is this NIC */
void id_use_device(struct id *i)
{
	i->id.verbs = cm_device();
	i->id.port_num = PORT;
	if (!i->id.pd)
		i->id.pd = cm_domain();
}

/* id_bind() - Its socket, opened if there is none, has that address; -1, with errno: it has not */
int id_bind(struct id *i, const struct sockaddr_in *to)
{
	int yes = 1;

	if (i->fd < 0) {
		i->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
		if (i->fd < 0)
			return -1;
		setsockopt(i->fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
	}
	return bind(i->fd, (const struct sockaddr *)to, sizeof *to);
}

int rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *a)
{
	struct id *i = (struct id *)id;
	struct sockaddr_in *in = (struct sockaddr_in *)a;
	struct sockaddr_in any = {.sin_family = AF_INET};
	socklen_t room = sizeof any;
	bool wildcard;

	if (!id || !a || i->state != IDLE)
		return cm_fail(EINVAL);
	if (a->sa_family == AF_INET6) { /* of which there is only what stands for any address */
		const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)a;
		if (memcmp(&six->sin6_addr, &in6addr_any, sizeof in6addr_any))
			return cm_fail(ENODEV);
		any.sin_port = six->sin6_port;
		in = &any;
	} else if (a->sa_family != AF_INET) {
		return cm_fail(EAFNOSUPPORT);
	}
	wildcard = !in->sin_addr.s_addr;
	if (!wildcard && ntohl(in->sin_addr.s_addr) >> 24 != 127 && in->sin_addr.s_addr != railbed_address(railbed_rank()))
		return cm_fail(ENODEV);
	if (id_bind(i, in) || getsockname(i->fd, (struct sockaddr *)&id->route.addr.src_sin, &room))
		return -1;
	id->route.addr.src_sin.sin_addr.s_addr = wildcard ? 0 : railbed_address(railbed_rank());
	if (!wildcard)
		id_use_device(i);
	i->state = BOUND;
	return 0;
}

int rdma_listen(struct rdma_cm_id *id, int backlog)
{
	struct sockaddr_in any = {.sin_family = AF_INET};
	struct id *i = (struct id *)id;

	if (!id)
		return cm_fail(EINVAL);
	if (i->state == IDLE && rdma_bind_addr(id, (struct sockaddr *)&any))
		return -1;
	if (i->state != BOUND)
		return cm_fail(EINVAL);
	if (listen(i->fd, backlog > 0 ? backlog : 1024) || !channel_watch(i, EPOLLIN, false))
		return -1;
	i->state = LISTENING;
	return 0;
}

static void let_go(struct id *i)
{
	events_forget(i);
	for (struct id *each = ((struct channel *)i->id.channel)->ids, *next; each; each = next) {
		next = each->next;
		if (each->listener == i && each->state == INCOMING) {
			rdma_destroy_id(&each->id);
			next = ((struct channel *)i->id.channel)->ids;
		} else if (each->listener == i) {
			each->listener = NULL;
		}
	}
	if (i->fd >= 0)
		close(i->fd); /* by which the other hears that it is over */
	channel_remove(i);
}

int rdma_destroy_id(struct rdma_cm_id *id)
{
	struct id *i = (struct id *)id;

	if (!id)
		return cm_fail(EINVAL);
	if (id->event)
		rdma_ack_cm_event(id->event);
	pthread_mutex_lock(&cm_lock);
	let_go(i);
	while (i->events)
		pthread_cond_wait(&cm_acknowledged, &cm_lock);
	pthread_mutex_unlock(&cm_lock);
	if (i->sync)
		rdma_destroy_event_channel(id->channel);
	free(id->route.path_rec);
	free(i->attr);
	free(i);
	return 0;
}

/* What is looked for on an identifier's socket; 0: nothing */
static uint32_t looked_for(const struct id *i)
{
	if (i->fd < 0 || i->state == IDLE || i->state == BOUND || i->state == ADDRESSED || i->state == ROUTED || i->state == OVER)
		return 0;
	return i->state == CONNECTING && !i->asked && !i->rests ? EPOLLOUT : EPOLLIN;
}

static void move(struct id *i, struct channel *from, struct channel *to)
{
	if (i->fd >= 0)
		epoll_ctl(from->channel.fd, EPOLL_CTL_DEL, i->fd, NULL);
	channel_remove(i);
	channel_add(to, i);
	if (looked_for(i))
		channel_watch(i, looked_for(i), false);
	events_move(i, from, to);
}

int rdma_migrate_id(struct rdma_cm_id *id, struct rdma_event_channel *channel)
{
	struct id *i = (struct id *)id;
	struct channel *from = (struct channel *)id->channel;
	struct rdma_event_channel *own = NULL;
	bool was_sync = i->sync;

	if (!channel && !(own = rdma_create_event_channel()))
		return -1;
	struct channel *to = (struct channel *)(own ? own : channel);
	if (was_sync && id->event) {
		rdma_ack_cm_event(id->event);
		id->event = NULL;
	}
	pthread_mutex_lock(&cm_lock);
	for (struct id *each = from->ids, *next; each; each = next) {
		next = each->next;
		if (each == i || (each->listener == i && each->state == INCOMING))
			move(each, from, to);
	}
	i->sync = own;
	while (i->events) /* what it was told of by the old one is acknowledged there */
		pthread_cond_wait(&cm_acknowledged, &cm_lock);
	pthread_mutex_unlock(&cm_lock);
	if (was_sync)
		rdma_destroy_event_channel(&from->channel);
	return 0;
}

int rdma_set_option(struct rdma_cm_id *id, int level, int name, void *value, size_t length)
{
	struct id *i = (struct id *)id;

	if (!id || !value)
		return cm_fail(EINVAL);
	if (level != RDMA_OPTION_ID)
		return cm_fail(ENOSYS);
	switch (name) {
	case RDMA_OPTION_ID_TOS:
	case RDMA_OPTION_ID_ACK_TIMEOUT:
		if (length != 1)
			return cm_fail(EINVAL);
		*(name == RDMA_OPTION_ID_TOS ? &i->tos : &i->ack_timeout) = *(uint8_t *)value;
		return 0;
	case RDMA_OPTION_ID_REUSEADDR: /* as it is anyway */
	case RDMA_OPTION_ID_AFONLY:
		return length == sizeof(int) ? 0 : cm_fail(EINVAL);
	default: return cm_fail(ENOSYS);
	}
}

int rdma_set_local_ece(struct rdma_cm_id *id, struct ibv_ece *ece)
{
	if (!id || id->qp || !ece || !ece->vendor_id)
		return cm_fail(EINVAL);
	((struct id *)id)->ece = *ece;
	return 0;
}

int rdma_get_remote_ece(struct rdma_cm_id *id, struct ibv_ece *ece)
{
	if (!id || id->qp || !ece)
		return cm_fail(EINVAL);
	*ece = ((struct id *)id)->peer_ece;
	return 0;
}

__be16 rdma_get_src_port(struct rdma_cm_id *id)
{
	return id->route.addr.src_sin.sin_port;
}

__be16 rdma_get_dst_port(struct rdma_cm_id *id)
{
	return id->route.addr.dst_sin.sin_port;
}
