/* Commands of programs: memory and queue pairs, as verbs have them. */
#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/vfs.h>

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
#define QP_TYPE_UD 4
#define MTU_CODE_MAX 5
#define FLAG_OWN_CLASS 1u
#define PORT_UP 1u
#define PORT_GIDS_MOVED 2u
#define MTU_MIN 256
#define LONGEST_HEADERS 64 /* IPv4, UDP, BTH, RETH, immediate, ICRC */

/* Is it memory that can be shared without harm?  Return: NULL, or what is wrong */
static const char *wrong_with(int fd, uint64_t place, uint64_t length)
{
	struct stat st;
	struct statfs fs;
	int seals = fcntl(fd, F_GET_SEALS);

	if (seals < 0 || !(seals & F_SEAL_SHRINK))
		return "REGISTER: not a memfd sealed with F_SEAL_SHRINK";
	if (fstatfs(fd, &fs) || fs.f_type != TMPFS_MAGIC)
		return "REGISTER: a memfd of huge pages";
	if (fstat(fd, &st) || place > (uint64_t)st.st_size || (uint64_t)st.st_size - place < length)
		return "REGISTER: memfd is shorter than the length named";
	return NULL;
}

static void tell_key(struct message *m, uint32_t cookie, uint32_t key)
{
	uint8_t reply[REPLY_REGION_BYTES];
	uint8_t *p = reply_head(reply, REPLY_REGION, sizeof reply);

	put_le32(put_le32(p, cookie), key);
	worker_send(m->f, m->w, reply, sizeof reply);
}

static bool has_room(const struct worker *w, uint64_t bytes)
{
	uint32_t every = 0;

	for (const struct worker *p = session_next(w->f, NULL); w->program && p; p = session_next(w->f, p))
		every += p->program ? p->regions.count : 0;
	return bytes <= w->f->worker_bytes - w->regions.bytes && every < PROGRAMS_REGIONS_MAX &&
	       w->regions.count < (w->program ? PROGRAM_REGIONS_MAX : WORKER_REGIONS_MAX);
}

const char *command_register(struct message *m)
{
	struct worker *w = m->w;
	struct region r = {.bytes = get_le64(&m->v)};
	r.address = get_le64(&m->v);
	uint64_t place = get_le64(&m->v);
	uint32_t cookie = get_le32(&m->v), access = get_le32(&m->v);

	r.pd = get_le32(&m->v);
	r.rights = access & RIGHTS;
	if (!m->alone || m->memfd < 0)
		return "REGISTER: must come alone, with one memfd";
	m->took = true;
	if (access & ~(RIGHTS) || (place ^ r.address) & 4095 || r.address + r.bytes < r.address)
		return "REGISTER: unknown access, or an address that is not that of its place in a page";
	if (!r.bytes)
		return "REGISTER: length 0";
	if (!has_room(w, r.bytes)) {
		if (!w->program)
			return "REGISTER: more than 256 regions, or together more than the memory that a worker may use (workers.memory)";
		tell_key(m, cookie, 0);
		return NULL;
	}
	const char *wrong = wrong_with(m->memfd, place, r.bytes);
	if (wrong)
		return wrong;
	if (!region_map(m->f, &r, m->memfd, place))
		return "REGISTER: memfd cannot be mapped for reading and writing";
	tell_key(m, cookie, region_add(w, &r)->key);
	return NULL;
}

const char *command_modify_region(struct message *m)
{
	struct post p = {.w = m->w, .qp = get_le32(&m->v), .kind = POST_KIND_REGION};

	p.region.access = get_le32(&m->v);
	p.region.domain = get_le32(&m->v);
	if (!region_of(m->w, p.qp) || p.region.access & ~(uint32_t)RIGHTS)
		return "MODIFY_REGION: unknown key or access";
	return worker_ring(m, &p);
}

const char *command_deregister(struct message *m)
{
	struct post p = {.w = m->w, .qp = get_le32(&m->v), .kind = POST_KIND_DEREGISTER};

	if (!region_of(m->w, p.qp))
		return "DEREGISTER: unknown key";
	return worker_ring(m, &p);
}

const char *command_create_qp(struct message *m)
{
	uint32_t cookie = get_le32(&m->v);
	uint8_t type = get_u8(&m->v), reply[REPLY_QP_BYTES];

	get_u8(&m->v);
	get_le16(&m->v);
	uint32_t domain = get_le32(&m->v), shared = get_le32(&m->v);
	if (type != QP_TYPE_RC && type != QP_TYPE_UD)
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
	if ((state > ASK_RTS && state != ASK_ERROR) || !qp_may_become(q->own->asked, state))
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

/* Requests of a session that name a region which goes, and have begun, cannot end well */
static void break_users(struct fabric *f, struct worker *w, uint32_t key)
{
	for (uint32_t i = 0; i < w->nic->qp_count; i++) {
		struct qp *q = w->nic->qps[i];
		if (q->owner != &w->owner || q->state != QP_READY)
			continue;
		for (uint32_t k = q->sq.head; k != q->sq.tail; k++) {
			struct send_wr *wr = SEND_WR(q, k);
			bool uses = wr->length && (!wr->pieces ? wr->lkey == key : false);
			for (uint32_t n = 0; wr->pieces && !wr->pieces->inline_bytes && n < wr->pieces->count; n++)
				uses |= wr->pieces->piece[n].key == key;
			if (!uses || wr->bad)
				continue;
			if (wr->first < q->sent_max) {
				qp_fail(f, q, WC_LOCAL_PROTECTION);
				break;
			}
			wr->bad = WC_LOCAL_PROTECTION;
			q->barred = wr->first < q->barred ? wr->first : q->barred;
		}
	}
}

/* verbs_deregister() - The NIC uses a region no longer */
void verbs_deregister(struct fabric *f, struct worker *w, uint32_t key)
{
	break_users(f, w, key);
	for (uint32_t i = 0; i < w->nic->qp_count; i++)
		if (w->nic->qps[i]->owner == &w->owner)
			lender_recall(f, &w->nic->qps[i]->lent, UINT64_MAX);
	region_remove(w, key);
}
