/* Workers' messages
 *
 * Theory of Operation
 *
 * A packet is a series of commands.  All of it comes from a process that is
 * not trusted: every length, key, number and range is checked here, before
 * anything acts on it, and whatever does not hold ends that worker's session.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/closer.h"
#include "base/patience.h"
#include "base/units.h"
#include "engine/clock.h"
#include "engine/event.h"
#include "engine/fabric.h"
#include "nic/nic.h"
#include "transport/qp.h"
#include "worker/records.h"
#include "worker/services.h"
#include "worker/worker.h"

#define MAGIC 0x31574252u
#define FILES_MAX 253 /* SCM_MAX_FD of the kernel's */
#define LENGTH_MAX (1ull << 31)	  /* of one request, as in reliable connections */
#define DURATION_MAX (1ull << 60) /* ps: thirteen days */

enum command {
	HELLO = 1, REGISTER, CONNECT, POST_SEND, POST_RECV, COMPUTE, SPEND, WAIT, SYNC, PROGRESS, BYE,
	GROUP, POST_OFFLOAD, LEAVE,
};

struct message {
	struct fabric *f;
	struct worker *w;
	struct view v; /* body of the command */
	int memfd;     /* came with the packet, or -1 */
	bool alone;    /* the command is the whole packet */
	bool last;
	bool took; /* the memfd */
};

/* Each command's handler returns NULL, or what is wrong with it */

static const char *hello(struct message *m)
{
	struct worker *w = m->w;
	uint32_t magic = get_le32(&m->v), version = get_le32(&m->v);
	uint8_t reply[40];

	if (magic != MAGIC)
		return "HELLO: wrong magic";
	if (version != WORKER_PROTOCOL)
		return "HELLO: protocol version 2 is spoken here";
	if (w->state != WORKER_ABSENT)
		return "HELLO: twice";
	w->state = WORKER_RUNNING;
	w->now = m->f->clock.now;
	uint8_t *p = put_le32(put_le16(put_le16(reply, 1), 0), sizeof reply);
	p = put_le32(put_le32(p, WORKER_PROTOCOL), w->rank);
	p = put_le32(put_le32(p, m->f->nic_count), m->f->clock.mode == CLOCK_REAL);
	p = put_le64(p, (uint64_t)w->now);
	put_le32(put_le32(p, w->nic->mtu), 0);
	worker_send(m->f, w, reply, sizeof reply);
	return NULL;
}

static const char *register_region(struct message *m)
{
	struct worker *w = m->w;
	uint64_t length = get_le64(&m->v);
	uint32_t cookie = get_le32(&m->v);
	struct stat st;
	struct statfs fs;

	if (!m->alone || m->memfd < 0)
		return "REGISTER: must come alone, with one memfd";
	if (w->region_count == REGIONS_MAX)
		return "REGISTER: more than 256 regions";
	if (!length || length > m->f->worker_bytes - w->region_bytes)
		return "REGISTER: length 0, or together more than the memory that a worker may use (workers.memory)";
	int seals = fcntl(m->memfd, F_GET_SEALS);
	if (seals < 0 || !(seals & F_SEAL_SHRINK))
		return "REGISTER: not a memfd sealed with F_SEAL_SHRINK";
	if (fstatfs(m->memfd, &fs) || fs.f_type != TMPFS_MAGIC)
		return "REGISTER: a memfd of huge pages";
	if (fstat(m->memfd, &st) || (uint64_t)st.st_size < length)
		return "REGISTER: memfd is shorter than the length named";
	void *base = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, m->memfd, 0);
	if (base == MAP_FAILED)
		return "REGISTER: memfd cannot be mapped for reading and writing";
	w->region[w->region_count++] = (struct region){.base = base, .bytes = length};
	w->region_bytes += length;
	m->took = true;

	uint8_t reply[16];
	uint8_t *p = put_le32(put_le16(put_le16(reply, 2), 0), sizeof reply);
	put_le32(put_le32(p, cookie), w->region_count);
	worker_send(m->f, w, reply, sizeof reply);
	return NULL;
}

static void say_connected(struct fabric *f, struct qp *q, ps_t t)
{
	worker_record(f, q->nic->worker,
		      &(struct record){.kind = REC_CONNECTED,
				       .wr_id = q->connect_cookie,
				       .t = t,
				       .qp = q->number,
				       .imm = q->tx == &q->nic->tx[1],
				       .bytes = q->peer_qp->private_bytes});
}

static const char *connect_qp(struct message *m)
{
	struct worker *w = m->w;
	uint32_t peer = get_le32(&m->v), tag = get_le32(&m->v), cookie = get_le32(&m->v);
	uint16_t private_bytes = get_le16(&m->v), flags = get_le16(&m->v);
	const uint8_t *private = view_take(&m->v, private_bytes);

	if (peer >= m->f->nic_count)
		return "CONNECT: no such rank";
	if (peer == w->rank)
		return "CONNECT: to itself";
	if (private_bytes > 256 || !private || m->v.left >= 8)
		return "CONNECT: private data longer than 256 bytes, or not of the length named";
	if (flags > 1)
		return "CONNECT: unknown flag";
	for (uint32_t i = 0; i < w->nic->qp_count; i++)
		if (w->nic->qps[i]->state == QP_CONNECTING && w->nic->qps[i]->connect_peer == peer &&
		    w->nic->qps[i]->connect_tag == tag)
			return "CONNECT: twice to one rank with one tag";
	struct qp *q = qp_new(w->nic, &worker_qp_owner);
	if (!q)
		return "CONNECT: more than 4096 queue pairs";
	q->connect_peer = peer;
	q->connect_tag = tag;
	q->connect_cookie = cookie;
	q->connect_time = w->now;
	q->no_scale_up = flags & 1;
	q->private_bytes = private_bytes;
	memcpy(q->private_data, private, private_bytes);
	w->connecting++;

	struct nic *other = &m->f->nics[peer];
	for (uint32_t i = 0; i < other->qp_count; i++) {
		struct qp *o = other->qps[i];
		if (o->state != QP_CONNECTING || o->connect_peer != w->rank || o->connect_tag != tag)
			continue;
		ps_t t = o->connect_time > q->connect_time ? o->connect_time : q->connect_time;
		qp_connected(m->f, q, o);
		w->connecting--;
		other->worker->connecting--;
		say_connected(m->f, q, t);
		say_connected(m->f, o, t);
		break;
	}
	return NULL;
}

/* What takes that long on a host, on this one */
static ps_t slowed(const struct worker *w, uint64_t duration)
{
	return w->nic->p.slow == 1 ? (ps_t)duration : (ps_t)((double)duration * w->nic->p.slow + 0.5);
}

/* The worker does something itself that takes so long */
static void busy(struct worker *w, uint64_t duration)
{
	ps_t took = slowed(w, duration);

	w->now += took;
	w->host += took;
}

/* A post takes post_ns of the worker's time and reaches the NIC a PCIe latency later */
static const char *post(struct message *m, const struct post *what)
{
	struct worker *w = m->w;
	struct post *p = w->posts_under_way < POSTS_MAX ? malloc(sizeof *p) : NULL;

	if (!p)
		return "more than 65536 posts that have not reached the NIC yet";
	*p = *what;
	p->w = w;
	busy(w, (uint64_t)w->nic->p.post);
	w->posts_under_way++;
	event_add(m->f, w->now + w->nic->p.pcie_latency, EV_DOORBELL, w->nic->n.index, 0, 0, ++w->posts, p, 0);
	return NULL;
}

static struct qp *usable_qp(struct worker *w, uint32_t number)
{
	struct qp *q = qp_find(w->nic, number);

	return q && q->state != QP_CONNECTING && q->owner == &worker_qp_owner ? q : NULL;
}

static const char *post_offload(struct message *m)
{
	struct post p = {.qp = get_le32(&m->v), .kind = POST_KIND_OFFLOAD};
	struct offload_wr wr = {0};

	wr.collective = get_u8(&m->v);
	wr.reduction = get_u8(&m->v);
	wr.element = get_u8(&m->v);
	wr.flags = get_u8(&m->v);
	wr.wr_id = get_le64(&m->v);
	wr.in_key = get_le32(&m->v);
	wr.out_key = get_le32(&m->v);
	wr.in = get_le64(&m->v);
	wr.out = get_le64(&m->v);
	wr.count = get_le64(&m->v);
	for (int i = 0; i < 4; i++)
		wr.args[i] = get_le64(&m->v);
	const char *wrong = m->f->services->check(m->w, p.qp, &wr);
	if (wrong)
		return wrong;
	p.offload = malloc(sizeof wr);
	if (!p.offload)
		abort();
	*p.offload = wr;
	wrong = post(m, &p);
	if (wrong)
		free(p.offload);
	return wrong;
}

static const char *group(struct message *m)
{
	uint32_t kind = get_le32(&m->v), tag = get_le32(&m->v), cookie = get_le32(&m->v), count = get_le32(&m->v);
	struct group_call asked = {.kind = kind, .tag = tag, .count = count, .cookie = cookie};
	static uint32_t ranks[GROUP_MEMBERS_MAX];

	for (int i = 0; i < GROUP_ARGS; i++)
		asked.args[i] = get_le64(&m->v);
	if (count > GROUP_MEMBERS_MAX || m->v.left != (size_t)(count + (count & 1)) * 4)
		return "GROUP: not of the length that its members take";
	for (uint32_t i = 0; i < count; i++)
		ranks[i] = get_le32(&m->v);
	return m->f->services->group(m->f, m->w, &asked, ranks);
}

static const char *leave(struct message *m)
{
	uint32_t id = get_le32(&m->v);

	get_le32(&m->v);
	return m->f->services->leave(m->f, m->w, id);
}

static const char *post_send(struct message *m)
{
	struct post p = {.qp = get_le32(&m->v)};
	struct send_wr *wr = &p.send;

	wr->opcode = get_u8(&m->v);
	uint8_t flags = get_u8(&m->v);
	get_le16(&m->v);
	wr->signaled = flags & 1;
	wr->wr_id = get_le64(&m->v);
	wr->lkey = get_le32(&m->v);
	wr->rkey = get_le32(&m->v);
	wr->local = get_le64(&m->v);
	wr->remote = get_le64(&m->v);
	wr->length = get_le64(&m->v);
	wr->imm = get_le32(&m->v);
	if (!usable_qp(m->w, p.qp))
		return "POST_SEND: no such queue pair, or not connected";
	if (wr->opcode >= WR_OPCODES || flags > 1)
		return "POST_SEND: unknown opcode or flag";
	if (wr->length > LENGTH_MAX)
		return "POST_SEND: longer than 2 GiB";
	if (wr->length && !worker_region(m->w, wr->lkey, wr->local, wr->length))
		return "POST_SEND: unknown lkey, or range outside its region";
	return post(m, &p);
}

static const char *post_recv(struct message *m)
{
	struct post p = {.qp = get_le32(&m->v), .kind = POST_KIND_RECV};

	p.receive.lkey = get_le32(&m->v);
	p.receive.wr_id = get_le64(&m->v);
	p.receive.offset = get_le64(&m->v);
	p.receive.length = get_le64(&m->v);
	if (!usable_qp(m->w, p.qp))
		return "POST_RECV: no such queue pair, or not connected";
	if (p.receive.length && !worker_region(m->w, p.receive.lkey, p.receive.offset, p.receive.length))
		return "POST_RECV: unknown lkey, or range outside its region";
	return post(m, &p);
}

static const char *compute(struct message *m)
{
	struct worker *w = m->w;
	uint64_t wr_id = get_le64(&m->v), duration = get_le64(&m->v);
	ps_t start = w->compute_free > w->now ? w->compute_free : w->now;

	if (duration > DURATION_MAX || start > (ps_t)DURATION_MAX)
		return "COMPUTE: longer than thirteen days";
	w->compute_free = start + slowed(w, duration);
	worker_record(m->f, w, &(struct record){.kind = REC_COMPUTE, .wr_id = wr_id, .t = w->compute_free});
	return NULL;
}

static const char *spend(struct message *m)
{
	uint64_t duration = get_le64(&m->v);

	if (duration > DURATION_MAX || m->w->now > (ps_t)DURATION_MAX)
		return "SPEND: longer than thirteen days";
	busy(m->w, duration);
	return NULL;
}

static const char *wait_records(struct message *m)
{
	uint32_t records = get_le32(&m->v);

	get_le32(&m->v);
	uint64_t until = get_le64(&m->v);
	if (!m->last)
		return "WAIT: must be the last command of a packet";
	if (until != UINT64_MAX && until > DURATION_MAX)
		return "WAIT: longer than thirteen days";
	worker_wait(m->f, m->w, records, until == UINT64_MAX ? PS_NEVER : (ps_t)until);
	return NULL;
}

static const char *sync_ranks(struct message *m)
{
	uint32_t tag = get_le32(&m->v), participants = get_le32(&m->v);

	if (participants == 0 || participants > m->f->nic_count)
		return "SYNC: participants 0, or more than there are ranks";
	worker_sync(m->f, m->w, tag, participants);
	return NULL;
}

static const char *progress(struct message *m)
{
	(void)m;
	return NULL;
}

static const char *bye(struct message *m)
{
	if (!m->last)
		return "BYE: must be the last command of a session";
	worker_end(m->f, m->w, WORKER_DONE, NULL);
	return NULL;
}

static const struct {
	const char *(*handle)(struct message *m);
	uint16_t body; /* bytes after the header; CONNECT, GROUP: at least */
} commands[] = {
	[HELLO] = {hello, 8},	      [REGISTER] = {register_region, 16}, [CONNECT] = {connect_qp, 16},
	[POST_SEND] = {post_send, 56}, [POST_RECV] = {post_recv, 32},	  [COMPUTE] = {compute, 16},
	[SPEND] = {spend, 8},	      [WAIT] = {wait_records, 16},	  [SYNC] = {sync_ranks, 8},
	[PROGRESS] = {progress, 0},   [BYE] = {bye, 0},		  [GROUP] = {group, 16 + 8 * GROUP_ARGS},
	[POST_OFFLOAD] = {post_offload, 80}, [LEAVE] = {leave, 8},
};

static const char *command(struct message *m, struct view *packet, size_t whole)
{
	uint16_t op = get_le16(packet), length = get_le16(packet);

	get_le32(packet);
	if (packet->bad || length < 8 || length % 8)
		return "command cut short, or of a length that is no multiple of 8";
	const uint8_t *body = view_take(packet, length - 8u);
	if (!body)
		return "command longer than its packet";
	if (op == 0 || op >= sizeof commands / sizeof commands[0])
		return "unknown command";
	if (op == CONNECT || op == GROUP ? length - 8u < commands[op].body : length - 8u != commands[op].body)
		return "command of a wrong length";
	if (m->w->state == WORKER_ABSENT && op != HELLO)
		return "HELLO must come first";
	m->v = view_of(body, length - 8u);
	m->alone = length == whole;
	m->last = packet->left == 0;
	return commands[op].handle(m);
}

/* worker_message() - A packet from a worker
 * @data:	Its bytes
 * @memfd:	File descriptor that came with it, or -1; stays the caller's
 */
void worker_message(struct fabric *f, struct worker *w, const uint8_t *data, size_t len, int memfd)
{
	struct message m = {.f = f, .w = w, .memfd = memfd};
	struct view packet = view_of(data, len);
	const char *wrong = NULL;

	patience_begin(&w->patience);
	w->hung = false;
	if (w->state == WORKER_WAITING)
		wrong = "a packet while it waits";
	else if (f->clock.mode == CLOCK_REAL && w->now < f->clock.now)
		w->now = f->clock.now;
	if (!len)
		wrong = "an empty packet";
	while (!wrong && packet.left && w->fd >= 0)
		wrong = command(&m, &packet, len);
	if (!wrong && memfd >= 0 && !m.took)
		wrong = "a file with a command that takes none";
	if (wrong)
		worker_end(f, w, WORKER_LOST, wrong);
	clock_workers_changed(f);
}

/* post_free() - Give a post back */
void post_free(struct post *p)
{
	if (p->kind == POST_KIND_OFFLOAD)
		free(p->offload);
	free(p);
}

/* worker_doorbell() - A posted request has reached the NIC */
void worker_doorbell(struct fabric *f, struct post *p)
{
	struct qp *q = qp_find(p->w->nic, p->qp);

	p->w->posts_under_way--;
	switch (p->kind) {
	case POST_KIND_SEND: qp_post_send(f, q, &p->send); break;
	case POST_KIND_RECV: qp_post_recv(f, q, &p->receive); break;
	case POST_KIND_OFFLOAD: f->services->post(f, p->w, p->qp, p->offload); break;
	}
	post_free(p);
}

/* Take the descriptors out of a message's control part; returns how many */
static int descriptors(struct msghdr *msg, int fds[FILES_MAX])
{
	int count = 0;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c))
		if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
			size_t bytes = c->cmsg_len - CMSG_LEN(0);
			for (size_t k = 0; k < bytes / sizeof(int) && count < FILES_MAX; k++)
				memcpy(&fds[count++], CMSG_DATA(c) + k * sizeof(int), sizeof(int));
		}
	return count;
}

/* worker_readable() - Take in what a worker has sent
 *
 * There is room for all the descriptors that a packet can carry: those that the kernel finds no room for it closes
 * itself, here and now.
 */
void worker_readable(struct fabric *f, struct worker *w)
{
	static _Alignas(8) uint8_t data[MESSAGE_MAX];
	static _Alignas(struct cmsghdr) uint8_t ancillary[CMSG_SPACE(FILES_MAX * sizeof(int))];

	for (int i = 0; i < 16 && w->fd >= 0; i++) {
		struct iovec iov = {.iov_base = data, .iov_len = sizeof data};
		struct msghdr msg = {
			.msg_iov = &iov, .msg_iovlen = 1, .msg_control = ancillary, .msg_controllen = sizeof ancillary};
		int fds[FILES_MAX];
		ssize_t n = recvmsg(w->fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return;
		int count = n < 0 ? 0 : descriptors(&msg, fds);
		if (n <= 0)
			worker_end(f, w, WORKER_LOST, n ? strerror(errno) : "its process has ended");
		else if (count > 1 || (msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC)))
			worker_end(f, w, WORKER_LOST, "packet longer than 64 KiB, or with more than one file");
		else
			worker_message(f, w, data, (size_t)n, count ? fds[0] : -1);
		while (count)
			close_later(fds[--count]);
	}
}
