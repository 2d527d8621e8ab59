/* Commands of workers: a session begins and ends, ranks connect. */
#include <string.h>

#include "base/bytes.h"
#include "base/units.h"
#include "engine/clock.h"
#include "engine/fabric.h"
#include "nic/nic.h"
#include "records/records.h"
#include "transport/qp.h"
#include "worker/command.h"
#include "worker/worker.h"

#define MAGIC 0x31574252u

/* Flags of HELLO */
#define HELLO_PROGRAM 1u
#define HELLO_PLACE(flags) ((flags) >> 1 & (PLACES_MAX - 1))

/* Flags of CONNECT */
#define CONNECT_NETWORK_ONLY 1u
#define CONNECT_OWN_CLASS 2u
#define CONNECT_CLASS 0x7fcu /* DSCP and class */

const char *command_hello(struct message *m)
{
	struct worker *w = m->w;
	uint32_t magic = get_le32(&m->v);
	uint16_t version = get_le16(&m->v), flags = get_le16(&m->v);
	uint8_t reply[REPLY_WELCOME_BYTES];

	if (magic != MAGIC)
		return "HELLO: wrong magic";
	if (version != WORKER_PROTOCOL)
		return "HELLO: protocol version 6 is spoken here";
	if (w->state != WORKER_ABSENT)
		return "HELLO: twice";
	if ((flags && !(flags & HELLO_PROGRAM)) || flags >> 12)
		return "HELLO: unknown flag";
	if (w->program && !flags)
		return "rank has a session already, or had one";
	if (flags && !w->program) {
		w = program_begin(m->f, w);
		if (!w)
			return "HELLO: the rank has 256 programs already";
		m->w = w;
	}
	if (HELLO_PLACE(flags))
		program_placed(m->f, w, HELLO_PLACE(flags));
	m->f->workers[w->rank].expected &= !w->program;
	w->now = w->program ? program_time(m->f, &m->f->workers[w->rank]) : m->f->clock.now;
	w->state = WORKER_RUNNING;
	uint8_t *p = reply_head(reply, REPLY_WELCOME, sizeof reply);
	p = put_le32(put_le32(p, WORKER_PROTOCOL), w->rank);
	p = put_le32(put_le32(p, m->f->nic_count), m->f->clock.mode == CLOCK_REAL);
	p = put_le64(p, (uint64_t)w->now);
	put_le32(put_le32(p, w->nic->mtu), (uint32_t)(w->nic->p.pcie_latency / PS_PER_NS));
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

const char *command_connect(struct message *m)
{
	struct worker *w = m->w;
	uint32_t peer = get_le32(&m->v), tag = get_le32(&m->v), cookie = get_le32(&m->v);
	uint16_t private_bytes = get_le16(&m->v), flags = get_le16(&m->v);
	uint32_t transport = get_le32(&m->v), zero = get_le32(&m->v);
	const uint8_t *private = view_take(&m->v, private_bytes);

	if (peer >= m->f->nic_count)
		return "CONNECT: no such rank";
	if (peer == w->rank)
		return "CONNECT: to itself";
	if (private_bytes > 256 || !private || m->v.left >= 8)
		return "CONNECT: private data longer than 256 bytes, or not of the length named";
	if (flags & ~(CONNECT_NETWORK_ONLY | CONNECT_OWN_CLASS | CONNECT_CLASS) ||
	    (flags & CONNECT_CLASS && !(flags & CONNECT_OWN_CLASS)))
		return "CONNECT: unknown flag";
	if (zero || (transport && transport > json_array_size(m->f->named_transports)))
		return "CONNECT: no transport of that number";
	for (uint32_t i = 0; i < w->nic->qp_count; i++)
		if (w->nic->qps[i]->state == QP_CONNECTING && w->nic->qps[i]->connect_peer == peer &&
		    w->nic->qps[i]->connect_tag == tag)
			return "CONNECT: twice to one rank with one tag";
	struct qp *q = qp_new(w->nic, &w->owner);
	if (!q)
		return "CONNECT: more than 4096 queue pairs";
	q->connect_peer = peer;
	q->connect_tag = tag;
	q->connect_cookie = cookie;
	q->connect_time = w->now;
	if (transport)
		q->transport = json_array_get(m->f->named_transports, transport - 1);
	q->no_scale_up = flags & CONNECT_NETWORK_ONLY;
	q->own_class = flags & CONNECT_OWN_CLASS;
	q->dscp = flags >> 2 & 63;
	q->class = flags >> 8 & 7;
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

const char *command_bye(struct message *m)
{
	if (!m->last)
		return "BYE: must be the last command of a session";
	worker_end(m->f, m->w, WORKER_DONE, NULL);
	return NULL;
}
