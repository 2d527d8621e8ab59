/* Faults of frames: which frames on a cable they happen to
 *
 * Theory of Operation
 *
 * A rule looks at the frames that leave certain ports, when they start on the
 * cable.  Of those that match (class, opcode, addresses, queue pair, DSCP) it
 * picks some:
 *
 *	share	each with a probability
 *	every	every n-th
 *	first	the first n
 *	burst	Gilbert and Elliott's: two states, a loss rate in each
 *	hash	all frames of a share of the flows, by a hash of their headers
 *	meter	what a token bucket lets not through
 *
 * What happens to them is the rule's effect (effects.c).  Each port counts the frames
 * that its rule has seen there, and draws by that number: no other fault and no other
 * port's frames change what it strikes.  Only a meter is one for all ports of its switch.
 */
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/random.h"
#include "base/units.h"
#include "engine/fabric.h"
#include "fault/effects.h"
#include "fault/fault.h"
#include "link/frame.h"
#include "link/impairment.h"
#include "link/params.h"
#include "link/port.h"
#include "wire/ethernet.h"
#include "wire/ip.h"
#include "wire/roce.h"

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

	uint32_t places = 0;

	r->ports = calloc(f->port_count + 1, sizeof *r->ports);
	if (!r->ports)
		abort();
	if (!json_array_size(list))
		return "inject: ports: a list of NODE:PORT is needed";
	json_array_foreach(list, i, v) {
		const struct port *p = fabric_port_named(f, json_string_value(v));
		if (!p || !p->cable || p->number == 0 || !p->peer)
			return "inject: ports: no such port (NODE:PORT)";
		if (!r->ports[p->index].place)
			r->ports[p->index].place = ++places;
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
	const char *shown = json_string_value(json_object_get(request, "shown"));
	double delay = 0, jitter = 0, dscp = 0;

	if (!(r->effect = effect_find(effect)))
		return effects_listed();
	if (!number(request, "delay_ns", 0, 1e12, &delay) || !number(request, "jitter_ns", 0, 1e12, &jitter))
		return "inject: delay_ns, jitter_ns: from 0 to 1e12";
	if (!number(request, "dscp", 0, 63, &dscp))
		return "inject: dscp: from 0 to 63";
	if (json_object_get(request, "shown") && !(shown && shown_find(shown, &r->shown)))
		return "inject: shown: silent, crc, acl or meter";
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
			if (x->rule.ports[p->index].place)
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
	struct view v = view_of(fr->data, frame_near(fr));
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

static bool selected(struct fabric *f, struct fault *x, struct watched *w, const struct frame *fr,
		     const struct headers *h)
{
	struct frame_rule *r = &x->rule;
	uint64_t n = ++w->seen;

	switch (r->select) {
	case SELECT_ALL: return true;
	case SELECT_SHARE: return fault_draw(f, x, w, RANDOM_LOSS) < r->share;
	case SELECT_EVERY: return n % r->n == 0;
	case SELECT_FIRST: return n <= r->n;
	case SELECT_HASH:
		return random_unit(r->salt, (uint64_t)h->src << 32 | h->dst, (uint64_t)h->src_port << 32 | h->qp, 0) < r->share;
	case SELECT_METER: return over_rate(f, r, fr);
	case SELECT_BURST:
		if (fault_draw(f, x, w, RANDOM_STATE) < (w->bad ? r->to_good : r->to_bad))
			w->bad = !w->bad;
		return fault_draw(f, x, w, RANDOM_LOSS) < (w->bad ? r->loss_bad : r->loss_good);
	}
	return false;
}

/* frames_strike() - A frame is about to start on the cable from @p: what do the faults do to it? */
struct frame_fate frames_strike(struct fabric *f, const struct port *p, struct frame *fr)
{
	struct frame_fate fate = {0};

	for (struct fault *x = f->faults; x; x = x->next) {
		if (x->kind != FAULT_FRAMES || !x->on || !x->rule.ports[p->index].place)
			continue;
		struct headers h = headers_of(fr);
		struct watched *w = &x->rule.ports[p->index];
		if (!matches(&x->rule, fr, &h) || !selected(f, x, w, fr, &h))
			continue;
		x->hits += effect_strike(&(struct strike){.f = f, .fault = x, .at = w, .fr = fr, .fate = &fate, .retries = p->cable->p.retry_bytes});
	}
	return fate;
}
