/* Faults of frames: what happens to them on a cable
 *
 * Theory of Operation
 *
 * A rule looks at the frames that leave certain ports, when they start on the
 * cable.  Of those that match (class, opcode, addresses, queue pair, DSCP) it
 * selects some: a random share, every n-th, the first n, bursts (Gilbert and
 * Elliott: two states, a loss rate in each), a fixed share of all flows by a hash
 * of their headers, or what a meter lets not through: a token bucket, in emulated
 * time, from which every frame takes its bytes.  Random draws are numbered by the frames that the rule
 * has seen, so they do not depend on any other fault.
 *
 * A frame that is dropped has been on the cable and is counted at its far end.  A
 * duplicate comes in right behind the original.  A delayed frame holds up those
 * behind it, unless the rule reorders.
 */
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/random.h"
#include "base/units.h"
#include "engine/fabric.h"
#include "fault/fault.h"
#include "link/frame.h"
#include "link/impairment.h"
#include "link/params.h"
#include "link/port.h"
#include "wire/ethernet.h"
#include "wire/ip.h"
#include "wire/roce.h"

#define BTH_AT (ETH_BYTES + IPV4_BYTES + UDP_BYTES)

static const char *const effects[FRAME_EFFECTS] = {
	[FRAME_DROP] = "drop",		       [FRAME_CORRUPT] = "corrupt",
	[FRAME_CORRUPT_SILENT] = "corrupt_silent", [FRAME_DUPLICATE] = "duplicate",
	[FRAME_DELAY] = "delay",	       [FRAME_SET_DSCP] = "set_dscp",
	[FRAME_CLEAR_ECN] = "clear_ecn",
};

static bool number(const json_t *o, const char *key, double least, double most, double *to)
{
	const json_t *v = json_object_get(o, key);

	if (!v)
		return true;
	*to = json_number_value(v);
	return json_is_number(v) && *to >= least && *to <= most;
}

static const char *load_ports(struct fabric *f, struct frame_rule *r, const json_t *list)
{
	size_t i;
	const json_t *v;

	r->ports = calloc(f->port_count / 8 + 1, 1);
	if (!r->ports)
		abort();
	if (!json_array_size(list))
		return "inject: ports: a list of NODE:PORT is needed";
	json_array_foreach(list, i, v) {
		const struct port *p = fabric_port_named(f, json_string_value(v));
		if (!p || !p->cable || p->number == 0 || !p->peer)
			return "inject: ports: no such port (NODE:PORT)";
		r->ports[p->index / 8] |= (uint8_t)(1u << (p->index % 8));
	}
	return NULL;
}

static const char *load_selection(struct frame_rule *r, const json_t *o)
{
	const json_t *burst = json_object_get(o, "burst"), *hash = json_object_get(o, "hash"),
		     *meter = json_object_get(o, "meter");
	double n = 0, salt = 0, burst_bytes = 0;

	r->select = SELECT_ALL;
	if (json_object_get(o, "share"))
		r->select = SELECT_SHARE;
	if (!number(o, "share", 0, 1, &r->share))
		return "inject: share: from 0 to 1";
	if (json_object_get(o, "every"))
		r->select = SELECT_EVERY;
	if (json_object_get(o, "first"))
		r->select = SELECT_FIRST;
	if (!number(o, "every", 1, 1e12, &n) || !number(o, "first", 1, 1e12, &n))
		return "inject: every, first: from 1 to 1e12";
	r->n = (uint64_t)n;
	if (burst) {
		r->select = SELECT_BURST;
		r->loss_bad = 1;
		if (!number(burst, "to_bad", 0, 1, &r->to_bad) || !number(burst, "to_good", 0, 1, &r->to_good) ||
		    !number(burst, "loss_bad", 0, 1, &r->loss_bad) || !number(burst, "loss_good", 0, 1, &r->loss_good))
			return "inject: burst: to_bad, to_good, loss_bad, loss_good: from 0 to 1";
	}
	if (hash) {
		r->select = SELECT_HASH;
		if (!number(hash, "share", 0, 1, &r->share) || !number(hash, "salt", 0, 1e15, &salt))
			return "inject: hash: share from 0 to 1, salt from 0 to 1e15";
		r->salt = (uint64_t)salt;
	}
	if (meter) {
		r->select = SELECT_METER;
		if (!number(meter, "rate_bps", 1, 1e15, &r->rate_bps) || !number(meter, "burst_bytes", 1, 1e12, &burst_bytes) ||
		    r->rate_bps < 1 || burst_bytes < 1)
			return "inject: meter: rate_bps from 1 to 1e15, burst_bytes from 1 to 1e12";
		r->burst = (ps_t)(burst_bytes * 8 * 1e12 / r->rate_bps + 0.5);
	}
	return NULL;
}

static const char *load_match(struct fabric *f, struct frame_rule *r, const json_t *o)
{
	const json_t *list, *v;
	size_t i;
	double x = 0;

	r->classes = 0xff;
	if ((list = json_object_get(o, "classes"))) {
		r->classes = 0;
		json_array_foreach(list, i, v)
			if (json_integer_value(v) >= 0 && json_integer_value(v) < CLASSES)
				r->classes |= (uint8_t)(1u << json_integer_value(v));
	}
	if ((list = json_object_get(o, "opcodes"))) {
		r->by_opcode = true;
		json_array_foreach(list, i, v) {
			unsigned op = 0;
			while (op < 256 && strcmp(roce_opcode_name((uint8_t)op), json_string_value(v) ? json_string_value(v) : ""))
				op++;
			if (op == 256)
				return "inject: match: opcodes: unknown";
			r->opcodes[op / 64] |= 1ull << (op % 64);
		}
	}
	for (int dst = 0; dst < 2; dst++) {
		const char *key = dst ? "dst_rank" : "src_rank";
		if (!json_object_get(o, key))
			continue;
		if (!number(o, key, 0, (double)f->nic_count - 1, &x))
			return "inject: match: src_rank, dst_rank: no such rank";
		*(dst ? &r->by_dst : &r->by_src) = true;
		*(dst ? &r->dst_ip : &r->src_ip) = f->nics[(uint32_t)x].ip;
	}
	if (!number(o, "qp", 0, PSN_MASK, &x))
		return "inject: match: qp: from 0 to 16777215";
	if ((r->by_qp = json_object_get(o, "qp")))
		r->qp = (uint32_t)x;
	if (!number(o, "dscp", 0, 63, &x))
		return "inject: match: dscp: from 0 to 63";
	if ((r->by_dscp = json_object_get(o, "dscp")))
		r->match_dscp = (uint8_t)x;
	return NULL;
}

/* frames_load() - Take in a rule
 * Return: NULL, or what is wrong
 */
const char *frames_load(struct fabric *f, struct fault *x, const json_t *request)
{
	struct frame_rule *r = &x->rule;
	const char *effect = json_string_value(json_object_get(request, "effect")), *wrong;
	double delay = 0, jitter = 0, dscp = 0;

	for (r->effect = 0; r->effect < FRAME_EFFECTS; r->effect++)
		if (effect && !strcmp(effect, effects[r->effect]))
			break;
	if (r->effect == FRAME_EFFECTS)
		return "inject: effect: drop, corrupt, corrupt_silent, duplicate, delay, set_dscp or clear_ecn";
	if (!number(request, "delay_ns", 0, 1e12, &delay) || !number(request, "jitter_ns", 0, 1e12, &jitter))
		return "inject: delay_ns, jitter_ns: from 0 to 1e12";
	if (!number(request, "dscp", 0, 63, &dscp))
		return "inject: dscp: from 0 to 63";
	r->delay = (ps_t)(delay * PS_PER_NS + 0.5);
	r->jitter = (ps_t)(jitter * PS_PER_NS + 0.5);
	r->dscp = (uint8_t)dscp;
	r->reorder = json_is_true(json_object_get(request, "reorder"));
	if ((wrong = load_ports(f, r, json_object_get(request, "ports"))) ||
	    (wrong = load_selection(r, json_object_get(request, "select"))))
		return wrong;
	return load_match(f, r, json_object_get(request, "match"));
}

/* frames_switch() - A rule goes on or off: its ports look at their frames, or no longer */
void frames_switch(struct fabric *f, struct fault *x, bool on)
{
	for (uint32_t i = 0; i < f->node_count; i++)
		for (uint16_t k = 0; k < f->nodes[i]->port_count; k++) {
			struct port *p = &f->nodes[i]->ports[k];
			if (x->rule.ports[p->index / 8] >> (p->index % 8) & 1)
				p->frame_faults += on ? 1 : -1;
		}
}

struct headers {
	bool roce, ip;
	uint32_t src, dst, qp;
	uint16_t src_port;
	uint8_t opcode, dscp;
};

static struct headers headers_of(const struct frame *fr)
{
	struct view v = view_of(fr->data, fr->len);
	struct headers h = {.ip = is_ipv4(fr->data, fr->len)};

	if (!h.ip)
		return h;
	view_take(&v, ETH_BYTES + 1);
	h.dscp = get_u8(&v) >> 2;
	view_take(&v, 7);
	uint8_t protocol = get_u8(&v);
	view_take(&v, 2);
	h.src = get_be32(&v);
	h.dst = get_be32(&v);
	h.src_port = get_be16(&v);
	uint16_t dst_port = get_be16(&v);
	view_take(&v, 4);
	h.opcode = get_u8(&v);
	view_take(&v, 4);
	h.qp = get_be24(&v);
	h.roce = !v.bad && protocol == 17 && dst_port == ROCE_UDP_PORT;
	return h;
}

static bool matches(const struct frame_rule *r, const struct frame *fr, const struct headers *h)
{
	return r->classes >> fr->class & 1 &&
	       (!r->by_opcode || (h->roce && r->opcodes[h->opcode / 64] >> (h->opcode % 64) & 1)) &&
	       (!r->by_src || (h->ip && h->src == r->src_ip)) && (!r->by_dst || (h->ip && h->dst == r->dst_ip)) &&
	       (!r->by_qp || (h->roce && h->qp == r->qp)) && (!r->by_dscp || (h->ip && h->dscp == r->match_dscp));
}

/* The bucket, kept as the time at which it will be full.  Return: whether too little was in it; then none is taken */
static bool over_rate(const struct fabric *f, struct frame_rule *r, const struct frame *fr)
{
	ps_t now = f->clock.now, level = r->level > now ? r->level : now;

	level += (ps_t)(fr->len * 8.0 * 1e12 / r->rate_bps + 0.5);
	if (level > now + r->burst)
		return true;
	r->level = level;
	return false;
}

static bool selected(struct fabric *f, struct fault *x, const struct frame *fr, const struct headers *h)
{
	struct frame_rule *r = &x->rule;
	uint64_t n = ++r->seen;

	switch (r->select) {
	case SELECT_ALL: return true;
	case SELECT_SHARE: return random_unit(f->seed, x->number, n, RANDOM_LOSS) < r->share;
	case SELECT_EVERY: return n % r->n == 0;
	case SELECT_FIRST: return n <= r->n;
	case SELECT_HASH:
		return random_unit(r->salt, (uint64_t)h->src << 32 | h->dst, (uint64_t)h->src_port << 32 | h->qp, 0) < r->share;
	case SELECT_METER: return over_rate(f, r, fr);
	case SELECT_BURST:
		if (random_unit(f->seed, x->number, n, RANDOM_STATE) < (r->bad ? r->to_good : r->to_bad))
			r->bad = !r->bad;
		return random_unit(f->seed, x->number, n, RANDOM_LOSS) < (r->bad ? r->loss_bad : r->loss_good);
	}
	return false;
}

/* Turn one bit of the payload; silently, only where there is data.  Return: whether it was done */
static bool corrupt(struct fabric *f, const struct fault *x, struct frame *fr, bool silent)
{
	uint32_t from = BTH_AT + BTH_BYTES, to = fr->len > ICRC_BYTES ? fr->len - ICRC_BYTES : fr->len;
	uint64_t draw = random_of(f->seed, x->number, x->rule.seen, RANDOM_BITS);

	if (silent && is_ipv4(fr->data, fr->len)) { /* behind RETH: the data */
		uint32_t ip_bytes = (uint32_t)(fr->data[ETH_BYTES + 2] << 8 | fr->data[ETH_BYTES + 3]);
		from += roce_has_reth(fr->data[BTH_AT]) ? RETH_BYTES : 0;
		from += roce_has_imm(fr->data[BTH_AT]) ? IMM_BYTES : 0;
		if (ETH_BYTES + ip_bytes > fr->len || ETH_BYTES + ip_bytes < from + ICRC_BYTES + 1)
			return false;
		if (fr->data[BTH_AT] == RC_ACK || fr->data[BTH_AT] == RC_CNP)
			return false;
		to = ETH_BYTES + ip_bytes - ICRC_BYTES;
	}
	if (to <= from)
		from = to - 1;
	fr->data[from + draw % (to - from)] ^= (uint8_t)(1u << (draw >> 32) % 8);
	if (silent)
		roce_set_icrc(fr->data, to + ICRC_BYTES);
	return true;
}

/* frames_strike() - A frame is about to start on the cable from @p: what do the faults do to it? */
struct frame_fate frames_strike(struct fabric *f, const struct port *p, struct frame *fr)
{
	struct frame_fate fate = {0};

	for (struct fault *x = f->faults; x; x = x->next) {
		struct frame_rule *r = &x->rule;
		if (x->kind != FAULT_FRAMES || !x->on || !(r->ports[p->index / 8] >> (p->index % 8) & 1))
			continue;
		struct headers h = headers_of(fr);
		if (!matches(r, fr, &h) || !selected(f, x, fr, &h))
			continue;
		bool struck = true;
		switch (r->effect) {
		case FRAME_DROP: fate.dropped = true; break;
		case FRAME_CORRUPT: struck = corrupt(f, x, fr, false); break;
		case FRAME_CORRUPT_SILENT: struck = corrupt(f, x, fr, true); break;
		case FRAME_DUPLICATE: fate.duplicates++; break;
		case FRAME_DELAY:
			fate.delay += r->delay +
				      (ps_t)(random_unit(f->seed, x->number, r->seen, RANDOM_DELAY) * (double)r->jitter);
			fate.reorder = fate.reorder || r->reorder;
			break;
		case FRAME_SET_DSCP:
			if (h.ip)
				ip_set_tos(fr->data, (uint8_t)(r->dscp << 2 | (fr->data[ETH_BYTES + 1] & 3)));
			break;
		case FRAME_CLEAR_ECN:
			if (h.ip && (fr->data[ETH_BYTES + 1] & 3) == 3)
				ip_set_tos(fr->data, (uint8_t)((fr->data[ETH_BYTES + 1] & ~3) | 2));
			break;
		case FRAME_EFFECTS: break;
		}
		x->hits += struck;
	}
	return fate;
}
