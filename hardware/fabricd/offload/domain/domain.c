/* Sums and copies in the switch of a scale-up domain: a GPU's end
 *
 * Theory of Operation
 *
 * As NVLink SHARP has it (NVLS): a GPU loads from an address that stands for the memory of all, and gets what the
 * switch has added up of the members' shares (`multimem.ld_reduce`); it stores to that address, and the switch copies
 * it into the memory of all, its own, too (`multimem.st`).  Each member owns a part of the vector.  It asks for the
 * sums of its part block by block, and sends each sum to all as soon as it is here; so of n members every one sends
 * and gets V (1 + 1/n) bytes of an all-reduce of V.  The halves by themselves are a reduce-scatter and an all-gather.
 *
 * All members post the same requests in the same order.  With each post a member tells the others how many it has
 * posted; what nobody has still to post may be loaded and overwritten.  Requests follow each other without a pause.
 *
 * A member has LOADS_MAX loads under way at a time, so that the switch needs no more room for sums.  Nothing is lost in
 * a domain: there are no acknowledgements and no timers.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/fabric.h"
#include "link/frame.h"
#include "nic/nic.h"
#include "offload/domain/domain.h"
#include "vector/element.h"
#include "wire/roce.h"
#include "worker/worker.h"

static const char *check(const struct fabric *f, const struct group *g)
{
	(void)f;
	return g->count <= 256 ? NULL : "GROUP: domain: up to 256 members";
}

static void blocks_room(struct blocks *q, uint32_t room)
{
	*q = (struct blocks){.at = calloc(room, sizeof *q->at), .room = room};
	if (!q->at)
		abort();
}

/* blocks_add() - Behind the others; there is room */
void blocks_add(struct blocks *q, const struct block *b)
{
	q->at[(q->head + q->count++) % q->room] = *b;
}

struct block blocks_take(struct blocks *q)
{
	struct block b = q->at[q->head];

	q->head = (q->head + 1) % q->room;
	q->count--;
	return b;
}

static const char *group_opened(struct fabric *f, struct group *g)
{
	(void)f;
	for (uint32_t i = 0; i < g->count; i++)
		if (!g->member[i].nic->scale_up || g->member[i].nic->scale_up != g->member[0].nic->scale_up)
			return "its ranks are not in one scale-up domain";
	struct domain_sum *sums = domain_sums(g->count);
	for (uint32_t i = 0; i < g->count; i++) {
		struct domain *d = calloc(1, sizeof *d + g->count * sizeof *d->heard);
		if (!d)
			abort();
		blocks_room(&d->asked, g->count * LOADS_MAX);
		blocks_room(&d->sums, LOADS_MAX);
		d->in_switch = sums;
		g->member[i].state = d;
	}
	return NULL;
}

static const char *check_wr(const struct member *m, const struct offload_wr *wr)
{
	const struct domain *d = m->state;
	struct worker *w = m->nic->worker;

	if (d->requests.count == REQUESTS_MAX)
		return "POST_OFFLOAD: domain: more than 64 requests";
	if (!(wr->collective & (DOMAIN_SUMS | DOMAIN_COPIES)) || wr->collective >= DOMAIN_ALL)
		return "POST_OFFLOAD: domain: sums, copies, or both";
	if (wr->element >= ELEMENTS || !reduction_fits(wr->reduction, wr->element) || wr->reduction == RED_PROD)
		return "POST_OFFLOAD: domain: sum, avg, min, max, and bits of integers";
	if (!wr->count || wr->count > 1ull << 34 || wr->args[0] >= m->group->count)
		return "POST_OFFLOAD: domain: from 1 to 2^34 elements, and a root among the members";
	uint64_t bytes = wr->count * element_bytes[wr->element];
	if (!worker_region(w, wr->in_key, wr->in, bytes) || !worker_region(w, wr->out_key, wr->out, bytes))
		return "POST_OFFLOAD: unknown key, or range outside its region";
	return NULL;
}

/* domain_elements() - Of a block: what fits into a packet */
uint32_t domain_elements(const struct group *g, const struct offload_wr *wr)
{
	return g->member[0].nic->mtu / element_bytes[wr->element];
}

/* domain_part() - How many elements a member owns, and the first of them: equal parts, or one longer in front */
uint64_t domain_part(const struct group *g, const struct offload_wr *wr, uint32_t owner, uint64_t *first)
{
	uint64_t each = wr->count / g->count, longer = wr->count % g->count;

	if (wr->collective & DOMAIN_ROOTED) {
		*first = 0;
		return owner == wr->args[0] ? wr->count : 0;
	}
	*first = owner * each + (owner < longer ? owner : longer);
	return each + (owner < longer);
}

/* domain_has() - Whether a request has such a block */
bool domain_has(const struct group *g, const struct offload_wr *wr, const struct block *b)
{
	uint64_t first, length = b->owner < g->count ? domain_part(g, wr, b->owner, &first) : 0;
	uint32_t most = domain_elements(g, wr);

	if (!length || b->first < first || b->first - first >= length || (b->first - first) % most)
		return false;
	uint64_t left = length - (b->first - first);
	return b->count == (left < most ? left : most);
}

/* domain_memory() - Where a block lies at a member, or NULL if its worker has gone */
uint8_t *domain_memory(const struct member *m, const struct offload_wr *wr, bool out, const struct block *b)
{
	uint64_t size = element_bytes[wr->element];

	return worker_memory(m->nic->worker, out ? wr->out_key : wr->in_key, (out ? wr->out : wr->in) + b->first * size,
			     b->count * size);
}

/* domain_request() - The request of that number, whose last 24 bits count, or NULL if it is done, or not posted */
struct request *domain_request(const struct domain *d, uint32_t number)
{
	uint32_t before = (number - (d->posted - d->requests.count)) & PSN_MASK;
	struct request *r = before < d->requests.count ? d->requests.head : NULL;

	while (r && before--)
		r = r->next;
	return r;
}

static uint64_t blocks_in(const struct group *g, const struct offload_wr *wr, uint32_t owner)
{
	uint64_t first, most = domain_elements(g, wr);

	return (domain_part(g, wr, owner, &first) + most - 1) / most;
}

static void post(struct fabric *f, struct member *m, const struct offload_wr *wr)
{
	struct domain *d = m->state;
	bool sums = wr->collective & DOMAIN_SUMS, copies = wr->collective & DOMAIN_COPIES;

	if (m->failed)
		return;
	requests_add(&d->requests, wr);
	struct request *r = d->requests.tail;
	for (uint32_t i = 0; i < m->group->count; i++) /* our shares of them leave, they come */
		r->left += (sums + copies) * blocks_in(m->group, wr, i);
	r->left += sums * blocks_in(m->group, wr, m->index);
	d->posted++;
	nic_tx_ready(f, &m->nic->tx[1], &m->source);
}

/* domain_took() - One thing less that a request waits for; tell of those that are done, in their order */
void domain_took(struct fabric *f, struct member *m, struct request *r)
{
	struct domain *d = m->state;

	r->left--;
	while (d->requests.head && !d->requests.head->left) {
		const struct offload_wr *wr = &d->requests.head->wr;
		offload_done(f, m, wr->wr_id, WC_SUCCESS, wr->count * element_bytes[wr->element], f->clock.now);
		requests_drop(&d->requests);
	}
}

/* The sums of a block of ours */
static void summed(struct fabric *f, struct member *m, struct request *r, const struct block *b, const uint8_t *payload)
{
	struct domain *d = m->state;
	uint8_t *out = domain_memory(m, &r->wr, true, b);

	if (out) {
		memcpy(out, payload, (size_t)b->count * element_bytes[r->wr.element]);
		if (r->wr.reduction == RED_AVG)
			elements_divide(r->wr.element, out, b->count, m->group->count);
	}
	if (r->wr.collective & DOMAIN_COPIES)
		blocks_add(&d->sums, b);
	else
		d->open--;
	domain_took(f, m, r);
}

static void copied(struct fabric *f, struct member *m, struct request *r, const struct block *b, const uint8_t *payload)
{
	uint8_t *out = domain_memory(m, &r->wr, true, b);

	if (out)
		memcpy(out, payload, (size_t)b->count * element_bytes[r->wr.element]);
	domain_took(f, m, r);
}

static bool received(struct fabric *f, struct member *m, const struct roce_packet *pkt)
{
	struct domain *d = m->state;
	struct block b = domain_block(pkt);

	if (pkt->opcode == OFF_MULTICAST && !b.count) {
		if (b.owner >= m->group->count)
			return false;
		d->heard[b.owner] += (uint32_t)psn_ahead(b.number, d->heard[b.owner]);
		return true;
	}
	struct request *r = domain_request(d, b.number);
	if (!r || !domain_has(m->group, &r->wr, &b))
		return false;
	bool whole = pkt->payload_bytes == b.count * element_bytes[r->wr.element];
	bool sums = r->wr.collective & DOMAIN_SUMS;
	if (pkt->opcode == OFF_CONTRIBUTE && !pkt->payload_bytes && sums && d->asked.count < d->asked.room)
		blocks_add(&d->asked, &b);
	else if (pkt->opcode == OFF_RESULT && whole && sums && b.owner == m->index && d->open > d->sums.count)
		summed(f, m, r, &b, pkt->payload);
	else if (pkt->opcode == OFF_MULTICAST && whole && r->wr.collective & DOMAIN_COPIES)
		copied(f, m, r, &b, pkt->payload);
	else
		return false;
	return true;
}

static bool receive(struct fabric *f, struct member *m, const struct roce_packet *pkt, struct frame *fr)
{
	if (m->failed || !received(f, m, pkt))
		return false;
	frame_release(f, fr);
	nic_tx_ready(f, &m->nic->tx[1], &m->source);
	return true;
}

static void group_closed(struct fabric *f, struct group *g)
{
	(void)f;
	domain_sums_free(((struct domain *)g->member[0].state)->in_switch, g->count);
	for (uint32_t i = 0; i < g->count; i++) {
		struct domain *d = g->member[i].state;
		requests_free(&d->requests);
		free(d->asked.at);
		free(d->sums.at);
		free(d);
	}
}

static const struct offload_ops domain = {
	.name = "domain",
	.tx = &domain_tx,
	.check = check,
	.open = group_opened,
	.check_wr = check_wr,
	.post = post,
	.receive = receive,
	.domain = domain_switch,
	.close = group_closed,
};
OFFLOAD_KIND(domain);
