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
 * and passes the answer on to those of its children who have asked.  It asks once for
 * all of them, and again when one of them asks for the second time.  Nobody is answered
 * while a sum for it still waits here, as in a pause.
 *
 * A sum that one rank alone wants goes to that rank, and to all others a result without
 * elements, which clocks out their next contributions.
 *
 * Exponents of block scaling are combined by their maximum, one block ahead.
 */
#include <stdio.h>
#include <string.h>

#include "accelerator/accelerator.h"
#include "accelerator/program.h"
#include "base/json.h"
#include "base/units.h"
#include "engine/fabric.h"
#include "link/frame.h"
#include "link/port.h"
#include "switch/switch.h"
#include "vector/element.h"
#include "wire/ip.h"
#include "wire/roce.h"

/* accelerator_load() - The accelerator of a switch, as configured; its port is the switch's last
 * Return: false, with f->error set, if it cannot be
 */
bool accelerator_load(struct fabric *f, struct accelerator *a, struct sw *s, const json_t *o)
{
	double slots = number_in(o, "slots", 1, 65535), elements = number_in(o, "elements", 1, 2250),
	       fan_in = number_in(o, "fan_in", 1, FAN_IN_MAX), ip = number_in(o, "ip", 1, 4294967295.0),
	       rate = number_in(o, "rate_bps", 1, 1e15), latency = number_in(o, "latency_ns", 0, 1e9);

	if (slots < 0 || elements < 0 || fan_in < 0 || ip < 0 || rate < 0 || latency < 0)
		return config_fail(f, "%s: accelerator: slots (1 to 65535), elements (1 to 2250), fan_in (1 to %d), ip, rate_bps "
				      "and latency_ns are needed", s->n.name, FAN_IN_MAX);
	bool lent = !json_object_get(o, "shared_slots");
	double shared = lent ? 0 : number_in(o, "shared_slots", 0, slots);
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
	a->port.p = a->port.base;
	a->cable.end[0] = p;
	a->cable.end[1] = &a->port;
	for (int i = 0; i < 2; i++) {
		a->cable.base_end[i] = a->cable.end[i];
		a->cable.end[i]->cable = &a->cable;
		a->cable.end[i]->peer = a->cable.end[!i];
	}
	pool_load(a, (uint32_t)(lent ? slots : shared), lent);
	s->accelerator = a;
	return true;
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
	fr->id = frame_number(&a->n);
	fr->class = class;
	port_enqueue(f, &a->port, fr);
}

/* Send a slot's version to an address, as a result or as our contribution */
static void emit(struct fabric *f, struct accelerator *a, struct program *p, uint32_t slot, int v, uint32_t to,
		 const struct roce_packet *like, uint8_t class)
{
	struct slot *s = &p->slot[slot];
	bool result = to != p->parent_ip, empty = to == p->group_ip && s->owner[v];
	struct roce_packet pkt = {
		.dst_ip = to,
		.src_port = roce_job_port(p->job),
		.tos = like->tos & (uint8_t)~1, /* as sent: able to be marked, not marked */
		.opcode = result ? OFF_RESULT : OFF_CONTRIBUTE,
		.dst_qp = p->job,
		.psn = s->use[v],
		.offload = {.offset = s->offset[v],
			    .slot = (uint16_t)slot,
			    .child = p->parent_child,
			    .count = empty ? 0 : s->count[v],
			    .exponent = s->exponent[v],
			    .next = s->next[v],
			    .flags = like->offload.flags,
			    .more = s->owner[v]},
		.payload = (const uint8_t *)s->sum[v],
		.payload_bytes = empty ? 0 : s->count[v] * 4u,
	};

	a->answered++;
	s->place[v] = a->port.tc[class].tx_frames + a->port.queue[class].frames;
	accelerator_send(f, a, &pkt, class);
}

/* A child asks for a sum that is complete */
static void asked(struct fabric *f, struct accelerator *a, struct program *p, const struct roce_packet *pkt, uint8_t class)
{
	const struct roce_offload *o = &pkt->offload;
	struct slot *s = &p->slot[o->slot];
	int v = pkt->psn & 1;
	uint64_t bit = 1ull << o->child;
	bool waits = a->port.tc[class].tx_frames <= s->place[v];

	if (!p->parent_ip) {
		if (waits && s->told[v] & bit)
			return;
		s->told[v] = waits ? s->told[v] | bit : bit;
	} else {
		bool again = s->told[v] & bit;
		s->asked[v] |= bit;
		if (waits || (s->told[v] && !again)) {
			s->told[v] |= bit;
			return;
		}
		s->told[v] = bit;
	}
	emit(f, a, p, o->slot, v, p->parent_ip ? p->parent_ip : p->child[o->child].ip, pkt, class);
}

static void begin(struct slot *s, int v, const struct roce_packet *pkt)
{
	s->use[v] = pkt->psn;
	s->complete[v] = false;
	s->seen[v] = s->asked[v] = s->told[v] = 0;
	s->offset[v] = pkt->offload.offset;
	s->count[v] = pkt->offload.count;
	s->owner[v] = pkt->offload.more;
	s->exponent[v] = pkt->offload.exponent;
	s->next[v] = pkt->offload.next;
}

/* A rank, or an accelerator below, contributes, or asks again */
static void contribute(struct fabric *f, struct accelerator *a, struct program *p, const struct roce_packet *pkt, uint8_t class)
{
	const struct roce_offload *o = &pkt->offload;
	struct slot *s = &p->slot[o->slot];
	int v = pkt->psn & 1;
	int32_t age = psn_ahead(pkt->psn, s->use[v]);
	uint64_t bit = 1ull << o->child;

	a->contributions++;
	if (age < 0) {
		a->stale++;
		return;
	}
	if (age > 0) /* everybody has the result before: this version is free */
		begin(s, v, pkt);
	if (o->count != s->count[v] || o->offset != s->offset[v] || o->more != s->owner[v]) {
		a->unknown++;
		return;
	}
	if (s->seen[v] & bit) {
		a->duplicates++;
		if (s->complete[v])
			asked(f, a, p, pkt, class);
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
	s->told[v] = p->parent_ip ? 0 : ~0ull;
	a->completed++;
	if (!p->parent_ip && s->owner[v])
		emit(f, a, p, o->slot, v, s->owner[v], pkt, class);
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

	frame_whole(f, fr);
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
	bool known = p && pkt.dst_ip == a->ip && slot_held(a, p, o->slot) && o->count <= a->elements &&
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
	frame_release(f, fr);
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
	json_t *o = json_pack("{s:s}", "switch", a->sw->n.name);
	uint32_t left = slots_left(a);

#define COUNTER(field, name, unit, sort, meaning) NUMBER(o, #name, a->field);
#define VALUE(expression, name, unit, sort, meaning) NUMBER(o, #name, expression);
#include "accelerator/counters.def"
	json_object_update_new(o, pool_json(a));
	return o;
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
