/* Shared slots of an accelerator: best-effort aggregation
 *
 * Theory of Operation
 *
 * Jobs without slots of their own share a pool of them (ATP: Lao et al., NSDI 2021,
 * sections 3.3 to 3.5).  A block of a job may use one slot of the pool, which its packets
 * name (offload/best_effort/slots.c says which).  If that slot is free, the first partial
 * sum of the block takes it, and others of the block are added to it.  If another block
 * has it, the partial sum is not added up here: it goes on to the next hop with a flag
 * that says so.  The next hop is the accelerator of the server's switch, and then the
 * job's parameter server, a host.  So nobody ever waits for a slot.
 *
 * Every partial sum carries the bitmap of the ranks in it.  When the last of the ranks
 * below this switch has contributed, the sum goes on.  The slot is kept, and recognizes
 * duplicates, until the result comes by on its way from the server to all.  A rank that
 * has waited too long sends again with a flag: then the slot gives up what it has, and
 * the sum goes on with it.
 *
 * A slot may be left behind: its result got lost, or a late duplicate took it.  It is
 * freed by whoever needs it.  That is a later block of the same job, whose window says
 * that the result is there, or any block if nothing has touched the slot for the
 * timeout of its job (`age`).  Slots of a job that has ended are freed with its program.
 *
 * The pool has a part of the accelerator's slots for good, or is lent all that are free
 * when a job comes, until none is left that shares them.
 *
 * A mark of congestion on any contribution stays with the sum, up to the result.
 */
#include <stdlib.h>
#include <string.h>

#include "accelerator/accelerator.h"
#include "base/json.h"
#include "base/units.h"
#include "engine/fabric.h"
#include "vector/element.h"
#include "wire/ip.h"
#include "wire/roce.h"

struct shared_slot {
	uint32_t job, number; /* whose, and which of its blocks; job 0: free */
	uint64_t ranks;
	ps_t touched;
	uint16_t count, flags;
	int16_t exponent, next;
	int32_t *sum;
};

struct shared_program {
	struct shared_program *next;
	uint32_t job, group_ip, next_ip, window;
	uint64_t ranks; /* that contribute through here */
	ps_t age;
};

struct pool {
	uint32_t slots, used, used_max, jobs;
	bool lent;
	struct shared_program *programs[PROGRAM_CHAINS];
#define COUNTER(field, name, unit, sort, meaning) uint64_t field;
#define VALUE(expression, name, unit, sort, meaning)
#include "accelerator/pool.def"
	int32_t *sums;
	struct shared_slot slot[];
};

/* pool_load() - Set so many slots of an accelerator aside, or only memory for them, which is lent */
void pool_load(struct accelerator *a, uint32_t slots, bool lent)
{
	if (!slots)
		return;
	a->pool = calloc(1, sizeof *a->pool + slots * sizeof(struct shared_slot));
	int32_t *sums = calloc((size_t)slots * a->elements, sizeof *sums);
	if (!a->pool || !sums)
		abort();
	a->pool->slots = slots;
	a->pool->lent = lent;
	a->pool->sums = sums;
	for (uint32_t i = 0; i < slots; i++)
		a->pool->slot[i].sum = sums + (size_t)i * a->elements;
}

/* pool_slots() - How many are set aside now */
uint32_t pool_slots(const struct accelerator *a)
{
	return a->pool && (a->pool->jobs || !a->pool->lent) ? a->pool->slots : 0;
}

/* How many a job that comes shares */
static uint32_t offered(const struct accelerator *a)
{
	return a->pool && a->pool->lent && !a->pool->jobs ? slots_left(a) : pool_slots(a);
}

static struct shared_program *program_of(const struct pool *pool, uint32_t job)
{
	struct shared_program *p = pool->programs[job % PROGRAM_CHAINS];

	while (p && p->job != job)
		p = p->next;
	return p;
}

/* pool_program() - The controller lets a job use the shared slots
 * Return: NULL, or what is wrong
 */
const char *pool_program(struct accelerator *a, uint32_t job, const json_t *request)
{
	const json_t *ranks = json_object_get(request, "ranks"), *v;
	json_int_t next = json_integer_value(json_object_get(request, "next_ip")),
		   window = json_integer_value(json_object_get(request, "window"));
	double age = json_number_value(json_object_get(request, "age_ns"));
	struct shared_program *p;
	uint64_t bits = 0;
	size_t i;

	if (!offered(a))
		return "accelerator_program: shared: the accelerator shares no slot";
	if (program_of(a->pool, job))
		return "accelerator_program: the job has a program there already";
	if (next < 1 || next > UINT32_MAX || window < 1 || window > 65535 || !(age >= 1 && age <= 1e9))
		return "accelerator_program: shared: next_ip, window (1 to 65535) and age_ns (1 to 1e9) are needed";
	json_array_foreach(ranks, i, v) {
		json_int_t rank = json_is_integer(v) ? json_integer_value(v) : -1;
		if (rank < 0 || rank >= FAN_IN_MAX)
			return "accelerator_program: shared: ranks: numbers below 64";
		bits |= 1ull << rank;
	}
	if (!bits)
		return "accelerator_program: shared: ranks are needed";
	p = malloc(sizeof *p);
	if (!p)
		abort();
	*p = (struct shared_program){
		.next = a->pool->programs[job % PROGRAM_CHAINS],
		.job = job,
		.group_ip = (uint32_t)json_number_value(json_object_get(request, "group_ip")),
		.next_ip = (uint32_t)next,
		.window = (uint32_t)window,
		.ranks = bits,
		.age = (ps_t)(age * PS_PER_NS),
	};
	a->pool->programs[job % PROGRAM_CHAINS] = p;
	a->pool->slots = offered(a);
	if (!a->pool->jobs++ && a->pool->lent)
		a->slots_free -= a->pool->slots;
	return NULL;
}

static void slot_free(struct pool *pool, struct shared_slot *s)
{
	s->job = 0;
	pool->used--;
}

/* pool_release() - A job is over */
void pool_release(struct accelerator *a, uint32_t job)
{
	struct pool *pool = a->pool;

	for (struct shared_program **at = pool ? &pool->programs[job % PROGRAM_CHAINS] : NULL, *p; pool && (p = *at);) {
		if (p->job != job) {
			at = &p->next;
			continue;
		}
		*at = p->next;
		free(p);
		if (!--pool->jobs && pool->lent)
			a->slots_free += pool->slots;
		for (uint32_t i = 0; i < pool->slots; i++)
			if (pool->slot[i].job == job)
				slot_free(pool, &pool->slot[i]);
	}
}

static void on(struct fabric *f, struct accelerator *a, const struct shared_program *p, const struct roce_packet *pkt, uint8_t class)
{
	struct roce_packet to = *pkt;

	to.dst_ip = p->next_ip;
	to.tos = pkt->tos & (uint8_t)~1; /* as sent: able to be marked, not marked */
	if ((pkt->tos & ECN_CE) == ECN_CE)
		to.offload.flags |= OFF_CONGESTED;
	a->answered++;
	accelerator_send(f, a, &to, class);
}

/* What a slot has goes on */
static void emit(struct fabric *f, struct accelerator *a, const struct shared_slot *s, const struct roce_packet *like,
		 uint16_t flags, uint8_t class)
{
	struct roce_packet pkt = *like;

	pkt.dst_qp = s->job;
	pkt.psn = s->number & PSN_MASK;
	pkt.src_port = roce_job_port(s->job);
	pkt.tos = like->tos & (uint8_t)~1;
	pkt.offload = (struct roce_offload){.offset = s->ranks,
					    .more = s->number,
					    .slot = (uint16_t)(s - a->pool->slot),
					    .count = s->count,
					    .exponent = s->exponent,
					    .next = s->next,
					    .flags = s->flags | flags};
	pkt.payload = (const uint8_t *)s->sum;
	pkt.payload_bytes = 4u * s->count;
	on(f, a, program_of(a->pool, s->job), &pkt, class);
}

static uint16_t marked(const struct roce_packet *pkt)
{
	return (pkt->offload.flags & (OFF_CONGESTED | OFF_COLLIDED)) | ((pkt->tos & ECN_CE) == ECN_CE ? OFF_CONGESTED : 0);
}

static void take(struct pool *pool, struct shared_slot *s, const struct roce_packet *pkt)
{
	const struct roce_offload *o = &pkt->offload;

	s->job = pkt->dst_qp;
	s->number = o->more;
	s->ranks = o->offset;
	s->count = o->count;
	s->exponent = o->exponent;
	s->next = o->next;
	s->flags = (o->flags & OFF_REDUCTION) | marked(pkt);
	if (o->count)
		memcpy(s->sum, pkt->payload, 4u * o->count);
	if (++pool->used > pool->used_max)
		pool->used_max = pool->used;
}

static void merge(struct shared_slot *s, const struct roce_packet *pkt)
{
	const struct roce_offload *o = &pkt->offload;

	block_add(s->sum, pkt->payload, o->count, o->flags & OFF_REDUCTION);
	s->ranks |= o->offset;
	s->exponent = o->exponent > s->exponent ? o->exponent : s->exponent;
	s->next = o->next > s->next ? o->next : s->next;
	s->flags |= marked(pkt);
}

/* Another block has the slot: is it still of use there?  If not, it is free afterwards */
static bool in_use(struct fabric *f, struct accelerator *a, struct shared_slot *s, const struct shared_program *p,
		   const struct roce_packet *pkt, uint8_t class)
{
	const struct shared_program *holder = program_of(a->pool, s->job);
	bool answered = s->job == p->job && (int32_t)(pkt->offload.more - s->number) >= (int32_t)p->window;

	if (!answered && f->clock.now - s->touched < holder->age)
		return true;
	a->pool->reclaimed++;
	if (!answered && s->ranks != holder->ranks) /* else it has gone on already */
		emit(f, a, s, pkt, 0, class);
	slot_free(a->pool, s);
	return false;
}

/* Sent again: what there is goes on with it */
static void resend(struct fabric *f, struct accelerator *a, const struct shared_program *p, struct shared_slot *s,
		   const struct roce_packet *pkt, uint8_t class)
{
	bool disjoint = !(s->ranks & pkt->offload.offset);

	if (s->job != p->job || s->number != pkt->offload.more || s->count != pkt->offload.count) {
		a->pool->passed++;
		on(f, a, p, pkt, class);
		return;
	}
	if (disjoint)
		merge(s, pkt);
	a->pool->evicted++;
	emit(f, a, s, pkt, OFF_RESEND, class);
	slot_free(a->pool, s);
}

static void take_partial(struct fabric *f, struct accelerator *a, const struct shared_program *p, const struct roce_packet *pkt, uint8_t class)
{
	const struct roce_offload *o = &pkt->offload;
	struct pool *pool = a->pool;
	struct shared_slot *s = &pool->slot[o->slot];
	bool ours = s->job == p->job && s->number == o->more;

	a->contributions++;
	if (o->flags & OFF_RESEND) {
		resend(f, a, p, s, pkt, class);
		return;
	}
	if (!ours && o->offset == p->ranks) { /* nothing to wait for */
		pool->passed++;
		on(f, a, p, pkt, class);
		return;
	}
	if (!ours && s->job && in_use(f, a, s, p, pkt, class)) {
		struct roce_packet collided = *pkt;
		collided.offload.flags |= OFF_COLLIDED;
		pool->collisions++;
		pool->passed++;
		on(f, a, p, &collided, class);
		return;
	}
	if (ours && (s->ranks & o->offset || s->count != o->count)) {
		a->duplicates++;
		return;
	}
	if (ours)
		merge(s, pkt);
	else
		take(pool, s, pkt);
	s->touched = f->clock.now;
	if (s->ranks != p->ranks)
		return;
	a->completed++;
	emit(f, a, s, pkt, 0, class);
}

/* pool_receive() - A packet for a job that shares slots: a partial sum, or a result that comes by
 * Return: false if it is neither
 */
bool pool_receive(struct fabric *f, struct accelerator *a, const struct roce_packet *pkt, uint8_t class)
{
	const struct shared_program *p = a->pool ? program_of(a->pool, pkt->dst_qp) : NULL;
	const struct roce_offload *o = &pkt->offload;

	if (!p || o->count > a->elements || pkt->payload_bytes != o->count * 4u || o->slot >= a->pool->slots)
		return false;
	if (pkt->opcode == OFF_RESULT && pkt->dst_ip == p->group_ip) {
		struct shared_slot *s = &a->pool->slot[o->slot];
		if (s->job == p->job && s->number == o->more)
			slot_free(a->pool, s);
		return true;
	}
	if (pkt->opcode != OFF_PARTIAL || pkt->dst_ip != a->ip || !o->offset || o->offset & ~p->ranks)
		return false;
	take_partial(f, a, p, pkt, class);
	return true;
}

/* pool_watermarks_clear() - As of the accelerator */
void pool_watermarks_clear(struct accelerator *a)
{
	if (a->pool)
		a->pool->used_max = a->pool->used;
}

/* pool_json() - How the pool is used */
json_t *pool_json(const struct accelerator *a)
{
	static const struct pool none;
	const struct pool *p = a->pool ? a->pool : &none;
	uint32_t shared = offered(a);
	json_t *o = json_object();

#define COUNTER(field, name, unit, sort, meaning) NUMBER(o, #name, p->field);
#define VALUE(expression, name, unit, sort, meaning) NUMBER(o, #name, expression);
#include "accelerator/pool.def"
	return o;
}

void pool_free(struct accelerator *a)
{
	for (uint32_t i = 0; a->pool && i < PROGRAM_CHAINS; i++)
		while (a->pool->programs[i]) {
			struct shared_program *p = a->pool->programs[i];
			a->pool->programs[i] = p->next;
			free(p);
		}
	if (a->pool)
		free(a->pool->sums);
	free(a->pool);
}
