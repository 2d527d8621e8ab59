/* Commands of programs: queue pairs, as verbs have them. */
#include <stdlib.h>

#include "base/bytes.h"
#include "engine/fabric.h"
#include "nic/nic.h"
#include "connection/attributes.h"
#include "transport/qp.h"
#include "worker/command.h"
#include "worker/region.h"
#include "worker/shared.h"
#include "worker/worker.h"

#define QP_TYPE_RC 2
#define QP_TYPE_UC 3
#define QP_TYPE_UD 4
#define MTU_CODE_MAX 5
#define FLAG_OWN_CLASS 1u
#define PORT_UP 1u
#define PORT_GIDS_MOVED 2u
#define MTU_MIN 256
#define LONGEST_HEADERS 64 /* IPv4, UDP, BTH, RETH, immediate, ICRC */

const char *command_create_qp(struct message *m)
{
	uint32_t cookie = get_le32(&m->v);
	uint8_t type = get_u8(&m->v), reply[REPLY_QP_BYTES];

	get_u8(&m->v);
	get_le16(&m->v);
	uint32_t domain = get_le32(&m->v), shared = get_le32(&m->v);
	if (type < QP_TYPE_RC || type > QP_TYPE_UD)
		return "CREATE_QP: unknown type";
	if (shared && !shared_of(m->w, shared))
		return "CREATE_QP: no such shared receive queue";
	struct qp *q = program_qp(m->f, m->w);
	if (q) {
		q->own = calloc(1, sizeof *q->own);
		if (!q->own)
			abort();
		q->own->pd = domain;
		q->own->shared = shared ? shared_of(m->w, shared) : NULL;
		q->own->timeout = PS_NEVER;
		q->own->datagrams = type == QP_TYPE_UD;
		q->own->unreliable = type == QP_TYPE_UC;
		q->no_scale_up = true;
	}
	uint8_t *p = reply_head(reply, REPLY_QP, sizeof reply);
	put_le32(put_le32(p, cookie), q ? q->number : 0);
	worker_send(m->f, m->w, reply, sizeof reply);
	return NULL;
}

/* The largest payload that the NIC's cable takes */
static uint32_t fits(uint32_t mtu, const struct cable *c)
{
	while (c && c->p.mtu && mtu > MTU_MIN && mtu + LONGEST_HEADERS > c->p.mtu)
		mtu /= 2;
	return mtu;
}

const char *command_query_port(struct message *m)
{
	const struct cable *c = m->w->nic->port->cable;
	uint8_t reply[REPLY_PORT_BYTES], *p = reply_head(reply, REPLY_PORT, sizeof reply);

	p = put_le32(put_le32(p, get_le32(&m->v)), (c && c->p.up ? PORT_UP : 0) | (m->w->nic->p.gids_moved ? PORT_GIDS_MOVED : 0));
	p = put_le64(p, c ? (uint64_t)c->p.rate_bps : 0);
	put_le32(put_le32(p, fits(m->w->nic->mtu, c)), (uint32_t)m->w->nic->qkey_viol);
	worker_send(m->f, m->w, reply, sizeof reply);
	return NULL;
}

/* worker_nic() - The NIC that has that address, or NULL */
struct nic *worker_nic(struct fabric *f, uint32_t ip)
{
	for (uint32_t i = 0; i < f->nic_count; i++)
		if (f->nics[i].ip == ip)
			return &f->nics[i];
	return NULL;
}

const char *command_modify_qp(struct message *m)
{
	struct post p = {.w = m->w, .qp = get_le32(&m->v), .kind = POST_KIND_MODIFY};
	struct qp *q = qp_find(m->w->nic, p.qp);
	struct qp_wanted *a = &p.wanted;
	uint8_t state = get_u8(&m->v);

	a->mtu = get_u8(&m->v);
	a->timeout = get_u8(&m->v);
	a->retry = get_u8(&m->v);
	a->rnr_retry = get_u8(&m->v);
	a->rnr_timer = get_u8(&m->v);
	a->reads_out = get_u8(&m->v);
	a->reads_in = get_u8(&m->v);
	a->expected_psn = get_le32(&m->v);
	a->send_psn = get_le32(&m->v);
	a->peer_number = get_le32(&m->v);
	a->peer = worker_nic(m->f, get_le32(&m->v));
	uint8_t flags = get_u8(&m->v);
	a->own_class = flags & FLAG_OWN_CLASS;
	a->dscp = get_u8(&m->v);
	a->class = get_u8(&m->v);
	a->rights = get_u8(&m->v);
	a->rate_kbps = get_le32(&m->v);
	a->qkey = get_le32(&m->v);
	a->state = (enum asked_state)state;
	if (!q || q->owner != &m->w->owner)
		return "MODIFY_QP: no such queue pair";
	if ((state > ASK_SQD && state != ASK_ERROR) || !qp_may_become(q->own->asked, state))
		return "MODIFY_QP: the queue pair cannot go to that state";
	if (flags & ~FLAG_OWN_CLASS || a->dscp > 63 || a->class > 7 || a->rights & ~(uint32_t)RIGHTS)
		return "MODIFY_QP: unknown flag, DSCP, class or access";
	if (state == ASK_RTR && !q->own->datagrams && (!a->peer || a->mtu < 1 || a->mtu > MTU_CODE_MAX))
		return "MODIFY_QP: no NIC has that address, or a path MTU that there is not";
	q->own->asked = state;
	return worker_ring(m, &p);
}

const char *command_destroy_qp(struct message *m)
{
	struct post p = {.w = m->w, .qp = get_le32(&m->v), .kind = POST_KIND_DESTROY};
	struct qp *q = qp_find(m->w->nic, p.qp);

	if (!q || q->owner != &m->w->owner)
		return "DESTROY_QP: no such queue pair";
	return worker_ring(m, &p);
}
