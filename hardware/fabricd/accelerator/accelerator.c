/* Accelerators: in-network aggregation
 *
 * Theory of Operation
 *
 * An accelerator hangs on the last port of its switch; flows steer contributions
 * there, and what it sends goes through the switch's tables again (as on a chip
 * that recirculates).  It works through the packets of a job by a program, which
 * the controller has written: who its children are (ranks, or accelerators below),
 * its parent, and how many slots the job has.
 *
 * A slot holds a vector of int32 in two versions (SwitchML, Sapio et al., NSDI 2021,
 * algorithm 3).  Contributions of one use of a slot, counted by the senders in the
 * PSN, are added up in the version that is the number's last bit; a bitmap says whose
 * have come.  With the last one the sum goes to all (at the root: to the job's
 * multicast address, from where group tables copy it) or as a contribution of its own
 * to the parent.  The other version keeps the result before for whoever did not get
 * it: nobody starts a use before it has the result of the last but one, so a third
 * version is never needed.  Numbering the uses, where the paper has the version bit
 * alone, tells late duplicates apart.
 *
 * A contribution that has come before is a question: if the use is complete, the root
 * answers its sender alone; one below the root asks its parent by contributing again,
 * and passes the answer on to those of its children who have asked.
 *
 * Exponents of block scaling are combined by their maximum, one block ahead.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "accelerator/accelerator.h"
#include "base/units.h"
#include "engine/fabric.h"
#include "link/frame.h"
#include "link/port.h"
#include "switch/switch.h"
#include "vector/element.h"
#include "wire/ip.h"
#include "wire/roce.h"

struct child {
	uint32_t ip;
	bool accelerator; /* below; else a rank */
};

struct slot {
	uint32_t use[2];
	bool complete[2];
	uint64_t seen[2], asked[2];
	uint64_t offset[2];
	uint16_t count[2];
	int16_t exponent[2], next[2];
	int32_t *sum[2];
};

struct program {
	struct program *next;
	uint32_t job, slots, children, group_ip;
	uint32_t parent_ip; /* 0: this is the root */
	uint16_t parent_child; /* what the parent knows this one as */
	struct child child[FAN_IN_MAX];
	int32_t *sums;
	struct slot slot[];
};

static double number(const json_t *o, const char *key, double least, double most)
{
	const json_t *v = json_object_get(o, key);
	double x = json_number_value(v);

	return json_is_number(v) && x >= least && x <= most ? x : -1;
}

/* accelerator_load() - The accelerator of a switch, as configured; its port is the switch's last
 * Return: false, with f->error set, if it cannot be
 */
bool accelerator_load(struct fabric *f, struct accelerator *a, struct sw *s, const json_t *o)
{
	double slots = number(o, "slots", 1, 65535), elements = number(o, "elements", 1, 2250),
	       fan_in = number(o, "fan_in", 1, FAN_IN_MAX), ip = number(o, "ip", 1, 4294967295.0),
	       rate = number(o, "rate_bps", 1, 1e15), latency = number(o, "latency_ns", 0, 1e9);

	if (slots < 0 || elements < 0 || fan_in < 0 || ip < 0 || rate < 0 || latency < 0)
		return config_fail(f, "%s: accelerator: slots (1 to 65535), elements (1 to 2250), fan_in (1 to %d), ip, rate_bps "
				      "and latency_ns are needed", s->n.name, FAN_IN_MAX);
	double shared = json_object_get(o, "shared_slots") ? number(o, "shared_slots", 0, slots) : 0;
	if (shared < 0)
		return config_fail(f, "%s: accelerator: shared_slots: from 0 to its slots", s->n.name);
	if (!s->n.port_count)
		return config_fail(f, "%s: accelerator: no port", s->n.name);
	struct port *p = &s->n.ports[s->n.port_count - 1];
	*a = (struct accelerator){
		.n = {.kind = NODE_ACCELERATOR, .ops = &accelerator_ops, .port_count = 1, .ports = &a->port},
		.sw = s,
		.ip = (uint32_t)ip,
		.slots = (uint32_t)slots,
		.slots_free = (uint32_t)(slots - shared),
		.elements = (uint32_t)elements,
		.fan_in = (uint32_t)fan_in,
		.cable = {.base = {.rate_bps = (int64_t)rate, .delay = (ps_t)(latency * PS_PER_NS + 0.5), .up = true}},
	};
	snprintf(a->n.name, sizeof a->n.name, "%.*s.acc", NAME_BYTES - 5, s->n.name);
	snprintf(a->cable.name, sizeof a->cable.name, "%.*s-%.*s", NAME_BYTES - 1, s->n.name, NAME_BYTES - 1, a->n.name);
	a->cable.p = a->cable.base;
	port_init(&a->port, &a->n, 1);
	a->cable.end[0] = p;
	a->cable.end[1] = &a->port;
	for (int i = 0; i < 2; i++) {
		a->cable.base_end[i] = a->cable.end[i];
		a->cable.end[i]->cable = &a->cable;
		a->cable.end[i]->peer = a->cable.end[!i];
	}
	pool_load(a, (uint32_t)shared);
	s->accelerator = a;
	return true;
}

static struct program *program_of(const struct accelerator *a, uint32_t job)
{
	struct program *p = a->programs[job % PROGRAM_CHAINS];

	while (p && p->job != job)
		p = p->next;
	return p;
}

static void program_free(struct program *p)
{
	free(p->sums);
	free(p);
}

static const char *load_children(struct program *p, const json_t *list)
{
	size_t i;
	const json_t *v;

	json_array_foreach(list, i, v) {
		double ip = number(v, "ip", 1, 4294967295.0);
		if (ip < 0)
			return "accelerator_program: children: an ip is needed";
		p->child[i].ip = (uint32_t)ip;
		p->child[i].accelerator = json_is_true(json_object_get(v, "accelerator"));
	}
	return NULL;
}

/* accelerator_program() - The controller gives a job slots of a switch's accelerator, and says who adds up there
 * Return: NULL, or what is wrong
 */
const char *accelerator_program(struct fabric *f, const json_t *request)
{
	const char *name = json_string_value(json_object_get(request, "switch"));
	const json_t *children = json_object_get(request, "children"), *parent = json_object_get(request, "parent");
	double job = number(request, "job", 1, PSN_MASK), slots = number(request, "slots", 1, 65535),
	       group = number(request, "group_ip", 1, 4294967295.0);
	bool shared = json_is_true(json_object_get(request, "shared"));
	struct accelerator *a = NULL;

	for (uint32_t i = 0; name && i < f->accelerator_count; i++)
		if (!strcmp(f->accelerators[i].sw->n.name, name))
			a = &f->accelerators[i];
	if (!a)
		return "accelerator_program: switch: none of that name has an accelerator";
	if (job < 0 || (slots < 0 && !shared) || group < 0)
		return "accelerator_program: job, slots (unless shared) and group_ip are needed";
	if (shared)
		return pool_program(a, (uint32_t)job, request);
	if (program_of(a, (uint32_t)job))
		return "accelerator_program: the job has a program there already";
	if (!json_array_size(children) || json_array_size(children) > a->fan_in)
		return "accelerator_program: children: from 1 to as many as the accelerator's bitmap has bits";
	if (slots > a->slots_free)
		return "accelerator_program: slots: fewer are free";
	struct program *p = calloc(1, sizeof *p + (size_t)slots * sizeof(struct slot));
	int32_t *sums = calloc((size_t)slots * 2 * a->elements, sizeof *sums);
	if (!p || !sums)
		abort();
	p->job = (uint32_t)job;
	p->slots = (uint32_t)slots;
	p->group_ip = (uint32_t)group;
	p->children = (uint32_t)json_array_size(children);
	p->sums = sums;
	const char *wrong = load_children(p, children);
	if (!wrong && parent) {
		double ip = number(parent, "ip", 1, 4294967295.0), child = number(parent, "child", 0, FAN_IN_MAX - 1);
		if (ip < 0 || child < 0) {
			wrong = "accelerator_program: parent: ip and child are needed";
		} else {
			p->parent_ip = (uint32_t)ip;
			p->parent_child = (uint16_t)child;
		}
	}
	if (wrong) {
		program_free(p);
		return wrong;
	}
	for (uint32_t i = 0; i < p->slots; i++)
		for (int v = 0; v < 2; v++) {
			p->slot[i].sum[v] = sums + (size_t)(2 * i + (uint32_t)v) * a->elements;
			p->slot[i].use[v] = (uint32_t)(v - 2) & PSN_MASK; /* of before the first */
		}
	p->next = a->programs[p->job % PROGRAM_CHAINS];
	a->programs[p->job % PROGRAM_CHAINS] = p;
	a->slots_free -= p->slots;
	uint32_t used = a->slots - pool_slots(a) - a->slots_free;
	a->slots_used_max = used > a->slots_used_max ? used : a->slots_used_max;
	return NULL;
}

/* accelerators_release() - A job is over: its slots are free again, everywhere */
void accelerators_release(struct fabric *f, uint32_t job)
{
	for (uint32_t i = 0; i < f->accelerator_count; i++) {
		struct accelerator *a = &f->accelerators[i];
		pool_release(a, job);
		for (struct program **at = &a->programs[job % PROGRAM_CHAINS], *p; (p = *at);) {
			if (p->job != job) {
				at = &p->next;
				continue;
			}
			*at = p->next;
			a->slots_free += p->slots;
			program_free(p);
		}
	}
}

/* accelerator_send() - Send a packet through the switch; MAC addresses are filled in */
void accelerator_send(struct fabric *f, struct accelerator *a, const struct roce_packet *pkt, uint8_t class)
{
	struct frame *fr = frame_new(f);
	struct roce_packet to = *pkt;

	to.src_ip = a->ip;
	to.ttl = TTL_SENT;
	mac_of(to.dst_ip, to.dst_mac);
	mac_of(a->ip, to.src_mac);
	fr->len = roce_build(fr->data, f->frame_room - TRAILER_BYTES, &to);
	fr->id = ++f->last_frame_id;
	fr->class = class;
	port_enqueue(f, &a->port, fr);
}

/* Send a slot's version to an address, as a result or as our contribution */
static void emit(struct fabric *f, struct accelerator *a, const struct program *p, uint32_t slot, int v, uint32_t to,
		 const struct roce_packet *like, uint8_t class)
{
	const struct slot *s = &p->slot[slot];
	bool result = to != p->parent_ip;
	struct roce_packet pkt = {
		.dst_ip = to,
		.src_port = (uint16_t)(0xc000 | (p->job * 0x9e3779b1u >> 18)),
		.tos = like->tos & (uint8_t)~1, /* as sent: able to be marked, not marked */
		.opcode = result ? OFF_RESULT : OFF_CONTRIBUTE,
		.dst_qp = p->job,
		.psn = s->use[v],
		.offload = {.offset = s->offset[v],
			    .slot = (uint16_t)slot,
			    .child = p->parent_child,
			    .count = s->count[v],
			    .exponent = s->exponent[v],
			    .next = s->next[v],
			    .flags = like->offload.flags},
		.payload = (const uint8_t *)s->sum[v],
		.payload_bytes = s->count[v] * 4u,
	};

	a->answered++;
	accelerator_send(f, a, &pkt, class);
}

static void begin(struct slot *s, int v, const struct roce_packet *pkt)
{
	s->use[v] = pkt->psn;
	s->complete[v] = false;
	s->seen[v] = s->asked[v] = 0;
	s->offset[v] = pkt->offload.offset;
	s->count[v] = pkt->offload.count;
	s->exponent[v] = pkt->offload.exponent;
	s->next[v] = pkt->offload.next;
}

/* A rank, or an accelerator below, contributes, or asks again */
static void contribute(struct fabric *f, struct accelerator *a, struct program *p, const struct roce_packet *pkt, uint8_t class)
{
	const struct roce_offload *o = &pkt->offload;
	struct slot *s = &p->slot[o->slot];
	int v = pkt->psn & 1;
	int32_t age = (int32_t)((pkt->psn - s->use[v]) << 8) >> 8;
	uint64_t bit = 1ull << o->child;

	a->contributions++;
	if (age < 0) {
		a->stale++;
		return;
	}
	if (age > 0) /* everybody has the result before: this version is free */
		begin(s, v, pkt);
	if (o->count != s->count[v] || o->offset != s->offset[v]) {
		a->unknown++;
		return;
	}
	if (s->seen[v] & bit) {
		a->duplicates++;
		if (!s->complete[v])
			return;
		if (!p->parent_ip) {
			emit(f, a, p, o->slot, v, p->child[o->child].ip, pkt, class);
		} else {
			s->asked[v] |= bit;
			emit(f, a, p, o->slot, v, p->parent_ip, pkt, class);
		}
		return;
	}
	if (s->seen[v])
		block_add(s->sum[v], pkt->payload, o->count, o->flags & OFF_REDUCTION);
	else if (o->count)
		memcpy(s->sum[v], pkt->payload, o->count * 4u);
	s->seen[v] |= bit;
	s->exponent[v] = o->exponent > s->exponent[v] ? o->exponent : s->exponent[v];
	s->next[v] = o->next > s->next[v] ? o->next : s->next[v];
	if (s->seen[v] != (p->children == 64 ? ~0ull : (1ull << p->children) - 1))
		return;
	s->complete[v] = true;
	a->completed++;
	emit(f, a, p, o->slot, v, p->parent_ip ? p->parent_ip : p->group_ip, pkt, class);
}

/* The parent's answer: pass it on to those who have asked */
static void pass_on(struct fabric *f, struct accelerator *a, struct program *p, const struct roce_packet *pkt, uint8_t class)
{
	struct slot *s = &p->slot[pkt->offload.slot];
	int v = pkt->psn & 1;

	if (pkt->psn != s->use[v])
		return;
	for (uint32_t i = 0; i < p->children; i++) {
		if (!(s->asked[v] >> i & 1))
			continue;
		struct roce_packet to = *pkt;
		to.dst_ip = p->child[i].ip;
		a->answered++;
		accelerator_send(f, a, &to, class);
	}
	s->asked[v] = 0;
}

/* A frame has come in from the switch */
static void receive(struct fabric *f, struct port *in, struct frame *fr)
{
	struct accelerator *a = (struct accelerator *)in->node;
	struct roce_packet pkt;
	enum roce_verdict verdict = roce_parse(fr->data, fr->len, &pkt);

	if (a->sw->p.accelerator_down) {
		port_drop(f, &a->port, fr, DROP_FAULT);
		return;
	}
	if (verdict != ROCE_OK) {
		port_drop(f, &a->port, fr, verdict == ROCE_BAD_ICRC ? DROP_ICRC : DROP_MALFORMED);
		return;
	}
	struct program *p = program_of(a, pkt.dst_qp);
	const struct roce_offload *o = &pkt.offload;
	bool known = p && pkt.dst_ip == a->ip && o->slot < p->slots && o->count <= a->elements &&
		     pkt.payload_bytes == o->count * 4u;
	if (pool_receive(f, a, &pkt, fr->class)) {
		/* of a job that has no slots of its own */
	} else if (known && pkt.opcode == OFF_CONTRIBUTE && o->child < p->children) {
		contribute(f, a, p, &pkt, fr->class);
	} else if (known && pkt.opcode == OFF_RESULT && p->parent_ip && pkt.src_ip == p->parent_ip) {
		pass_on(f, a, p, &pkt, fr->class);
	} else {
		a->unknown++;
		port_drop(f, &a->port, fr, DROP_NO_QP);
		return;
	}
	frame_free(f, fr);
}

const struct node_ops accelerator_ops = {.receive = receive};

/* accelerator_watermarks_clear() - The most in use so far is now what is in use */
void accelerator_watermarks_clear(struct accelerator *a)
{
	a->slots_used_max = a->slots - pool_slots(a) - a->slots_free;
	pool_watermarks_clear(a);
}

/* accelerator_json() - What it has, and what it has done */
json_t *accelerator_json(const struct accelerator *a)
{
	json_t *said = json_pack("{s:s, s:I, s:i, s:i, s:i, s:i, s:i, s:I, s:I, s:I, s:I, s:I, s:I}", "switch", a->sw->n.name,
				 "ip", (json_int_t)a->ip, "slots", (int)a->slots, "slots_free", (int)a->slots_free,
				 "slots_used_max", (int)a->slots_used_max, "elements", (int)a->elements, "fan_in",
				 (int)a->fan_in, "contributions", (json_int_t)a->contributions, "duplicates",
				 (json_int_t)a->duplicates, "stale", (json_int_t)a->stale, "completed",
				 (json_int_t)a->completed, "answered", (json_int_t)a->answered, "unknown",
				 (json_int_t)a->unknown);

	json_object_update_new(said, pool_json(a));
	return said;
}

void accelerator_free(struct accelerator *a)
{
	pool_free(a);
	for (uint32_t i = 0; i < PROGRAM_CHAINS; i++)
		while (a->programs[i]) {
			struct program *p = a->programs[i];
			a->programs[i] = p->next;
			program_free(p);
		}
}
