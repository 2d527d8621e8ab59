/* Completion queues and channels
 *
 * A record of fabricd becomes an entry of a queue.  Polling an empty queue is a WAIT for the next record: it costs no
 * CPU, and the program sees a completion when it is due.
 */
#include "railbed.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NEVER_SO_MANY UINT32_MAX
#define RESIZE_PS (10000 * PS_PER_NS) /* what a call of its driver takes */

struct channel {
	struct ibv_comp_channel channel;
	int in; /* what is written here can be read at channel.fd: serial numbers of queues */
};

static struct cq *cqs; /* all that there are */
static uint64_t serial;

static struct cq *cq_of(struct ibv_cq *c)
{
	return (struct cq *)c;
}

/* --- channels --- */
struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *c)
{
	struct channel *h = calloc(1, sizeof *h);
	int ends[2];

	if (!h || !session_pipe(ends)) {
		free(h);
		return NULL;
	}
	h->channel = (struct ibv_comp_channel){.context = c, .fd = ends[0]};
	h->in = ends[1];
	return &h->channel;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *c)
{
	if (c->refcnt)
		return EBUSY;
	syscall(SYS_close, c->fd);
	syscall(SYS_close, ((struct channel *)c)->in);
	free(c);
	return 0;
}

/* Its queue may be gone by now: nobody hears of that then */
int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **context)
{
	int fd = channel->fd;
	struct cq *q = NULL;
	uint64_t its;

	while (!q) {
		if (session_read(fd, &its, sizeof its) != sizeof its)
			return -1;
		session_lock();
		for (q = cqs; q && q->serial != its;)
			q = q->next;
		if (q) {
			q->events++;
			*cq = &q->cq;
			*context = q->cq.cq_context;
		}
		session_unlock();
	}
	return 0;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int count)
{
	pthread_mutex_lock(&cq->mutex);
	cq->comp_events_completed += count;
	pthread_cond_signal(&cq->cond);
	pthread_mutex_unlock(&cq->mutex);
}

int cq_notify(struct ibv_cq *c, int solicited_only)
{
	session_lock();
	if (c->channel && !cq_of(c)->armed)
		listener_armed(true);
	cq_of(c)->armed = true;
	cq_of(c)->solicited_only = solicited_only;
	session_unlock();
	return 0;
}

/* --- queues --- */
static struct cq *create(struct ibv_context *c, int cqe, void *context, struct ibv_comp_channel *channel, int vector)
{
	struct cq *q = NULL;

	errno = EINVAL;
	if (cqe > 0 && cqe < CQE_MAX && vector >= 0 && vector < c->num_comp_vectors)
		q = calloc(1, sizeof *q);
	if (!q)
		return NULL;
	q->room = 1;
	while (q->room < (uint32_t)cqe)
		q->room *= 2;
	q->ring = calloc(q->room, sizeof *q->ring);
	if (!q->ring) {
		free(q);
		errno = ENOMEM;
		return NULL;
	}
	q->forks = session.forks;
	q->cq.context = c;
	q->cq.channel = channel;
	q->cq.cq_context = context;
	q->cq.cqe = (int)q->room - 1 < cqe ? cqe : (int)q->room - 1;
	pthread_mutex_init(&q->cq.mutex, NULL);
	pthread_cond_init(&q->cq.cond, NULL);
	session_lock();
	q->serial = ++serial;
	q->next = cqs;
	cqs = q;
	if (channel)
		channel->refcnt++;
	session_unlock();
	return q;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *c, int cqe, void *context, struct ibv_comp_channel *channel, int vector)
{
	struct cq *q = create(c, cqe, context, channel, vector);

	return q ? &q->cq : NULL;
}

int ibv_destroy_cq(struct ibv_cq *c)
{
	struct cq *q = cq_of(c);

	session_lock();
	bool used = q->users;
	if (!used) {
		struct cq **at = &cqs;
		while (*at != q)
			at = &(*at)->next;
		*at = q->next;
		if (c->channel && q->armed)
			listener_armed(false);
		if (c->channel)
			c->channel->refcnt--;
	}
	session_unlock();
	if (used)
		return EBUSY;
	pthread_mutex_lock(&c->mutex);
	while (q->forks == session.forks && c->comp_events_completed != q->events)
		pthread_cond_wait(&c->cond, &c->mutex);
	pthread_mutex_unlock(&c->mutex);
	free(q->ring);
	free(q);
	return 0;
}

int ibv_resize_cq(struct ibv_cq *c, int cqe)
{
	struct cq *q = cq_of(c);
	uint32_t room = 1, n;

	if (cqe <= 0 || cqe >= CQE_MAX)
		return EINVAL;
	while (room < (uint32_t)cqe)
		room *= 2;
	struct ibv_wc *ring = calloc(room, sizeof *ring);
	if (!ring)
		return ENOMEM;
	session_lock();
	if (session.fd >= 0) /* what was posted long ago has ended by now */
		session_wait(NEVER_SO_MANY, session.now + session.spend + RESIZE_PS);
	n = q->tail - q->head;
	if ((uint32_t)cqe < n) {
		session_unlock();
		free(ring);
		return EINVAL;
	}
	for (uint32_t i = 0; i < n; i++)
		ring[i] = q->ring[(q->head + i) % q->room];
	free(q->ring);
	q->ring = ring;
	q->room = room;
	q->head = 0;
	q->tail = n;
	c->cqe = cqe;
	session_unlock();
	return 0;
}

/* cq_add() - Something has ended */
void cq_add(struct ibv_cq *c, const struct ibv_wc *wc, bool solicited)
{
	struct cq *q = cq_of(c);

	if (!q)
		return;
	if (q->tail - q->head == q->room) {
		q->overrun = true; /* it can be used no more, as the specification says */
		return;
	}
	q->ring[q->tail++ % q->room] = *wc;
	if (!q->armed || !c->channel || (q->solicited_only && !solicited && wc->status == IBV_WC_SUCCESS))
		return;
	q->armed = false;
	listener_armed(false);
	(void)!syscall(SYS_write, ((struct channel *)c->channel)->in, &q->serial, sizeof q->serial);
}

/* cq_forget() - A queue pair goes: its entries, too */
void cq_forget(struct ibv_cq *c, uint32_t qp_num)
{
	struct cq *q = cq_of(c);
	uint32_t to;

	if (!q)
		return;
	to = q->head;
	for (uint32_t i = q->head; i != q->tail; i++)
		if (q->ring[i % q->room].qp_num != qp_num)
			q->ring[to++ % q->room] = q->ring[i % q->room];
	q->tail = to;
}

static int take(struct cq *q, int n, struct ibv_wc *wc)
{
	int i = 0;

	while (i < n && q->head != q->tail)
		wc[i++] = q->ring[q->head++ % q->room];
	return i;
}

int cq_poll(struct ibv_cq *c, int n, struct ibv_wc *wc)
{
	struct cq *q = cq_of(c);

	session_lock();
	int got = take(q, n, wc);
	if (!got && n > 0 && session.fd >= 0 && q->forks == session.forks) {
		session_poll(q->empties);
		got = take(q, n, wc);
	}
	if (got)
		session.looks = 0; /* it is not the clock alone that is looked at */
	q->empties = got ? 0 : q->empties + 1;
	if (!got && (session.lost || q->overrun || q->forks != session.forks))
		got = -1;
	session_unlock();
	return got;
}

/* --- extended polling --- */
static struct cq *ex_of(struct ibv_cq_ex *x)
{
	return (struct cq *)x;
}

static int next(struct ibv_cq_ex *x)
{
	struct cq *q = ex_of(x);
	int got = cq_poll(&q->cq, 1, &q->current);

	if (got < 1)
		return got ? EIO : ENOENT;
	x->status = q->current.status;
	x->wr_id = q->current.wr_id;
	return 0;
}

static int start_poll(struct ibv_cq_ex *x, struct ibv_poll_cq_attr *a)
{
	return a && a->comp_mask ? EINVAL : next(x);
}

/* What is there already: a batch does not wait in its middle */
static int next_poll(struct ibv_cq_ex *x)
{
	return ex_of(x)->head == ex_of(x)->tail ? ENOENT : next(x);
}

static void end_poll(struct ibv_cq_ex *x)
{
	(void)x;
}

#define READ(type, field)                                                                                                   \
	static type read_##field(struct ibv_cq_ex *x)                                                                       \
	{                                                                                                                   \
		return ex_of(x)->current.field;                                                                             \
	}
READ(enum ibv_wc_opcode, opcode)
READ(uint32_t, vendor_err)
READ(uint32_t, byte_len)
READ(__be32, imm_data)
READ(uint32_t, qp_num)
READ(uint32_t, src_qp)
READ(unsigned int, wc_flags)
READ(uint32_t, slid)
READ(uint8_t, sl)
READ(uint8_t, dlid_path_bits)
#undef READ

#define WC_FLAGS                                                                                                            \
	(IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_IMM | IBV_WC_EX_WITH_QP_NUM | IBV_WC_EX_WITH_SRC_QP |                       \
	 IBV_WC_EX_WITH_SLID | IBV_WC_EX_WITH_SL | IBV_WC_EX_WITH_DLID_PATH_BITS)

struct ibv_cq_ex *cq_create_ex(struct ibv_context *c, struct ibv_cq_init_attr_ex *a)
{
	if (a->wc_flags & ~(uint64_t)WC_FLAGS || a->comp_mask & ~(uint32_t)(IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD)) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	struct cq *q = create(c, (int)a->cqe, a->cq_context, a->channel, (int)a->comp_vector);
	if (!q)
		return NULL;
	struct ibv_cq_ex *x = &q->ex;
	x->start_poll = start_poll;
	x->next_poll = next_poll;
	x->end_poll = end_poll;
	x->read_opcode = read_opcode;
	x->read_vendor_err = read_vendor_err;
	x->read_byte_len = read_byte_len;
	x->read_imm_data = read_imm_data;
	x->read_qp_num = read_qp_num;
	x->read_src_qp = read_src_qp;
	x->read_wc_flags = read_wc_flags;
	x->read_slid = read_slid;
	x->read_sl = read_sl;
	x->read_dlid_path_bits = read_dlid_path_bits;
	return x;
}
