/* Commands of programs: memory, as verbs have it
 *
 * Theory of Operation
 *
 * A region is memory of the program's that it shares (region.c).  Of one on demand the program says which pages it has.
 * Device memory is the NIC's own, of which there is little: a program that has some shares a file for it, too, as it can
 * write there, but what the NIC itself fetches from there, or puts there, does not cross PCIe.  Parts of it are registered
 * as regions whose addresses begin with 0.
 */
#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "base/bytes.h"
#include "engine/fabric.h"
#include "nic/nic.h"
#include "transport/qp.h"
#include "worker/command.h"
#include "worker/region.h"
#include "worker/worker.h"

#define ON_DEMAND 64u /* of REGISTER's access */
#define DEVICE_MEMORY_BYTES (128u << 10) /* of a NIC, as a ConnectX-6 has it */

enum { UNSEALED, HUGE_PAGES, SHORT };
#define REFUSALS(command)                                                                                                   \
	{                                                                                                                   \
		[UNSEALED] = command ": not a memfd sealed with F_SEAL_SHRINK", [HUGE_PAGES] = command ": a memfd of huge pages", \
		[SHORT] = command ": memfd is shorter than the length named"                                                \
	}

/* Is it memory that can be shared without harm?  Return: NULL, or what is wrong, in the command's words */
static const char *wrong_with(const char *const words[], int fd, uint64_t place, uint64_t length)
{
	struct stat st;
	struct statfs fs;
	int seals = fcntl(fd, F_GET_SEALS);

	if (seals < 0 || !(seals & F_SEAL_SHRINK))
		return words[UNSEALED];
	if (fstatfs(fd, &fs) || fs.f_type != TMPFS_MAGIC)
		return words[HUGE_PAGES];
	if (fstat(fd, &st) || place > (uint64_t)st.st_size || (uint64_t)st.st_size - place < length)
		return words[SHORT];
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
	static const char *const refusals[] = REFUSALS("REGISTER");
	struct worker *w = m->w;
	struct region r = {.bytes = get_le64(&m->v)};
	r.address = get_le64(&m->v);
	uint64_t place = get_le64(&m->v);
	uint32_t cookie = get_le32(&m->v), access = get_le32(&m->v);

	r.pd = get_le32(&m->v);
	r.rights = access & REGION_RIGHTS;
	if (!m->alone || m->memfd < 0)
		return "REGISTER: must come alone, with one memfd";
	m->took = true;
	if (access & ~(uint32_t)(REGION_RIGHTS | ON_DEMAND) || (place ^ r.address) & 4095 || r.address + r.bytes < r.address)
		return "REGISTER: unknown access, or an address that is not that of its place in a page";
	if (!r.bytes)
		return "REGISTER: length 0";
	if (!has_room(w, r.bytes)) {
		if (!w->program)
			return "REGISTER: more than 256 regions, or together more than the memory that a worker may use (workers.memory)";
		tell_key(m, cookie, 0);
		return NULL;
	}
	const char *wrong = wrong_with(refusals, m->memfd, place, r.bytes);
	if (wrong)
		return wrong;
	if ((access & ON_DEMAND && !region_on_demand(&r)) || !region_map(m->f, &r, m->memfd, place)) {
		free(r.there);
		return "REGISTER: memfd cannot be mapped for reading and writing";
	}
	tell_key(m, cookie, region_add(w, &r)->key);
	return NULL;
}

const char *command_modify_region(struct message *m)
{
	struct post p = {.w = m->w, .qp = get_le32(&m->v), .kind = POST_KIND_REGION};

	p.region.access = get_le32(&m->v);
	p.region.domain = get_le32(&m->v);
	if (!region_of(m->w, p.qp) || p.region.access & ~(uint32_t)REGION_RIGHTS)
		return "MODIFY_REGION: unknown key or access";
	return worker_ring(m, &p);
}

const char *command_deregister(struct message *m)
{
	struct post p = {.w = m->w, .qp = get_le32(&m->v), .kind = POST_KIND_DEREGISTER};

	if (!region_named(m->w, p.qp))
		return "DEREGISTER: unknown key";
	return worker_ring(m, &p);
}

const char *command_alloc_mw(struct message *m)
{
	uint32_t cookie = get_le32(&m->v), domain = get_le32(&m->v), type = get_le32(&m->v);

	if (type != 1 && type != 2)
		return "ALLOC_MW: unknown type";
	tell_key(m, cookie, has_room(m->w, 0) ? region_window(m->w, (uint8_t)type, domain)->key : 0);
	return NULL;
}

const char *command_pages(struct message *m)
{
	struct post p = {.w = m->w, .qp = get_le32(&m->v), .kind = POST_KIND_PAGES};

	p.pages.there = get_le32(&m->v) & 1;
	p.pages.address = get_le64(&m->v);
	p.pages.length = get_le64(&m->v);
	if (!region_of(m->w, p.qp))
		return "PAGES: unknown key";
	return worker_ring(m, &p);
}

const char *command_alloc_dm(struct message *m)
{
	static const char *const refusals[] = REFUSALS("ALLOC_DM");
	struct worker *w = m->w;
	struct region r = {.bytes = get_le64(&m->v), .on_device = true};
	uint32_t cookie = get_le32(&m->v);

	if (!m->alone || m->memfd < 0)
		return "ALLOC_DM: must come alone, with one memfd";
	m->took = true;
	if (!r.bytes)
		return "ALLOC_DM: length 0";
	if (!has_room(w, 0) || r.bytes > DEVICE_MEMORY_BYTES - w->nic->device_memory_used) {
		tell_key(m, cookie, 0);
		return NULL;
	}
	const char *wrong = wrong_with(refusals, m->memfd, 0, r.bytes);
	if (wrong)
		return wrong;
	if (!region_map(m->f, &r, m->memfd, 0))
		return "ALLOC_DM: memfd cannot be mapped for reading and writing";
	w->nic->device_memory_used += r.bytes;
	tell_key(m, cookie, region_add(w, &r)->key);
	return NULL;
}

const char *command_register_dm(struct message *m)
{
	uint64_t length = get_le64(&m->v), offset = get_le64(&m->v);
	uint32_t key = get_le32(&m->v), cookie = get_le32(&m->v), access = get_le32(&m->v), domain = get_le32(&m->v);
	struct region *whole = region_of(m->w, key), *r = NULL;

	if (!whole || !whole->on_device || !whole->mapped)
		return "REGISTER_DM: no such device memory";
	if (offset > whole->bytes || length > whole->bytes - offset || access & ~(uint32_t)RIGHTS)
		return "REGISTER_DM: outside its device memory, or unknown access";
	if (has_room(m->w, 0)) {
		r = region_part(m->w, whole, offset, length);
		region_grant(m->w, r->key, access, domain);
	}
	tell_key(m, cookie, r ? r->key : 0);
	return NULL;
}

static bool names(const struct send_wr *wr, uint32_t key)
{
	bool it = wr->length && !wr->pieces && wr->lkey == key;

	for (uint32_t n = 0; wr->pieces && !wr->pieces->inline_bytes && n < wr->pieces->count; n++)
		it |= wr->pieces->piece[n].key == key;
	return it;
}

/* Requests of a session whose memory (of that region; 0: of any) has gone, and that have begun, cannot end well */
static void break_users(struct fabric *f, struct worker *w, uint32_t key)
{
	for (uint32_t i = 0; i < w->nic->qp_count; i++) {
		struct qp *q = w->nic->qps[i];
		if (q->owner != &w->owner || q->state != QP_READY)
			continue;
		for (uint32_t k = q->sq.head; k != q->sq.tail; k++) {
			struct send_wr *wr = SEND_WR(q, k);
			if (wr->bad || (key && !names(wr, key)) || !q->owner->ops->check(q, wr))
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

/* What of their payload is lent is theirs no more */
static void recall(struct fabric *f, struct worker *w)
{
	for (uint32_t i = 0; i < w->nic->qp_count; i++)
		if (w->nic->qps[i]->owner == &w->owner)
			lender_recall(f, &w->nic->qps[i]->lent, UINT64_MAX);
}

/* memory_deregister() - The NIC uses a region no longer */
void memory_deregister(struct fabric *f, struct worker *w, uint32_t key)
{
	const struct region *r = region_named(w, key);

	if (!r)
		return;
	bool parts = r->parts;
	recall(f, w);
	region_remove(w, r->key);
	break_users(f, w, parts ? 0 : key);
}

/* memory_pages() - The program has those pages of a region on demand, or has them no more */
void memory_pages(struct fabric *f, struct worker *w, const struct post *p)
{
	if (!p->pages.there)
		recall(f, w);
	region_pages(w, p->qp, p->pages.address, p->pages.length, p->pages.there);
	if (!p->pages.there)
		break_users(f, w, p->qp);
}
