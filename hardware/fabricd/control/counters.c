/* Counters as JSON: ports, NICs (mlx5's names), queue pairs, switches, drops, fidelity. */
#include <stdio.h>
#include <string.h>

#include "accelerator/accelerator.h"
#include "base/json.h"
#include "base/units.h"
#include "control/control.h"
#include "engine/clock.h"
#include "engine/division.h"
#include "engine/fabric.h"
#include "fast_path/flow_cache.h"
#include "fault/fault.h"
#include "link/credits.h"
#include "link/params.h"
#include "link/port.h"
#include "link/retry.h"
#include "link/ways.h"
#include "nic/nic.h"
#include "switch/ovs.h"
#include "switch/switch.h"
#include "transport/multipath.h"
#include "transport/qp.h"
#include "wire/ethernet.h"
#include "wire/roce.h"

/* What mlx5 and SONiC count for each priority: `name` with the class in the place of N; all zero ones are left out */
static void class_count(json_t *o, const char *name, unsigned class, uint64_t value)
{
	int before = (int)strcspn(name, "N");
	char full[48];

	if (!value)
		return;
	snprintf(full, sizeof full, "%.*s%u%s", before, name, class, name + before + 1);
	NUMBER(o, full, value);
}

static void class_json(const struct fabric *f, const struct port *p, unsigned class, json_t *o)
{
	const struct traffic_class *tc = &p->tc[class];
	ps_t paused = tc->paused_total + (p->paused >> class & 1 ? f->clock.now - tc->paused_since : 0);

#define COUNTER(field, name, unit, sort, meaning) class_count(o, #name, class, tc->field);
#define VALUE(expression, name, unit, sort, meaning) class_count(o, #name, class, (uint64_t)(expression));
#include "link/class.def"
}

static void port_json(const struct fabric *f, const struct port *p, json_t *ports, json_t *drops)
{
	json_t *classes = json_object();
	uint64_t marked = 0, trimmed = 0;

	json_t *o = json_object(), *lost = json_object();
	char peer[NAME_BYTES + 16] = "";

	if (p->peer)
		snprintf(peer, sizeof peer, "%s:%u", p->peer->node->name, p->peer->number);
	json_object_set_new(o, "node", json_string(p->node->name));
	NUMBER(o, "port", p->number);
	json_object_set_new(o, "peer", json_string(peer));
#define COUNTER(field, name, unit, sort, meaning) NUMBER(o, #name, p->field);
#define RARE(field, name, unit, sort, meaning) NUMBER_IF(o, #name, p->field);
#define VALUE(expression, name, unit, sort, meaning) NUMBER(o, #name, expression);
#include "link/port.def"
	for (int why = 0; why < DROPS; why++) {
		char text[256] = "";
		if (!p->drops[why])
			continue;
		NUMBER(lost, drop_name((enum drop)why), p->drops[why]);
		if (p->last_drop[why])
			frame_describe(p->last_drop[why]->data, DROPPED_BYTES, p->last_drop[why]->len, text, sizeof text);
		json_array_append_new(drops, json_pack("{s:s, s:i, s:s, s:I, s:s}", "node", p->node->name, "port",
						       (int)p->number, "reason", drop_name((enum drop)why), "count",
						       (json_int_t)p->drops[why], "headers", text));
	}
	json_object_set_new(o, "drops", lost);
	CLASSES_EACH(c) {
		class_json(f, p, c, classes);
		marked += p->tc[c].marked;
		trimmed += p->tc[c].trimmed;
	}
	NUMBER(o, "ecn_marked", marked);
	NUMBER_IF(o, "trim_packets", trimmed);
	json_object_set_new(o, "priorities", classes);
	json_array_append_new(ports, o);
}

/* shown_json() - What an operator's counters call injected losses, and two kinds of drops more finely, of ports that have
 * some; no part of a run's figures
 */
static json_t *shown_json(const struct fabric *f)
{
	json_t *list = json_array();

	for (uint32_t k = 0; k < f->node_count; k++)
		for (uint16_t i = 0; f->nodes[k] && i < f->nodes[k]->port_count; i++) {
			const struct port *p = &f->nodes[k]->ports[i];
			json_t *o = json_pack("{s:s, s:i}", "node", p->node->name, "port", (int)p->number);
			for (int as = 0; as < SHOWNS; as++)
				if (p->shown[as])
					NUMBER(o, shown_name((enum shown)as), p->shown[as]);
			if (p->cut_off)
				NUMBER(o, "cut_off", p->cut_off);
			if (p->rx_full)
				NUMBER(o, "rx_full", p->rx_full);
			CLASSES_EACH(c) {
				char name[48];
				if (!p->tc[c].injected)
					continue;
				snprintf(name, sizeof name, "drops_prio%u", c);
				NUMBER(o, name, p->tc[c].injected);
				snprintf(name, sizeof name, "drop_bytes_prio%u", c);
				NUMBER(o, name, p->tc[c].injected_bytes);
			}
			if (json_object_size(o) > 2)
				json_array_append(list, o);
			json_decref(o);
		}
	return list;
}

/* groups_json() - The sets of ports that switches have taken one of: a row for each port; no part of a run's figures */
static json_t *groups_json(const struct fabric *f)
{
	json_t *rows = json_array();

	for (uint32_t k = 0; k < f->switch_count; k++) {
		const struct node *n = &f->switches[k].n;
		for (const struct ways *w = n->ways; w; w = w->next) {
			char set[10 * WAYS_MAX] = "";
			int at = 0;
			for (uint16_t i = 0; w->whole == w && i < w->count; i++)
				at += snprintf(set + at, sizeof set - (size_t)at, w->way[i].weight > 1 ? "%s%u*%u" : "%s%u", i ? "," : "", w->way[i].port,
					      w->way[i].weight);
			for (uint16_t i = 0; w->whole == w && i < w->count; i++)
				json_array_append_new(rows, json_pack("{s:s, s:s, s:i, s:i, s:I}", "switch", n->name, "set", set, "port",
								      (int)w->way[i].port, "weight", (int)w->way[i].weight,
								      "picks", (json_int_t)w->way[i].picks));
		}
	}
	return rows;
}

/* Of a class under credits: what its other end has room for, and what of that may still be sent */
static json_t *credits_json(const struct port *p)
{
	json_t *o = json_object();

	CLASSES_EACH(c) {
		char class[4];
		snprintf(class, sizeof class, "%u", c);
		if (credits_on(p, c))
			json_object_set_new(o, class, json_pack("{s:I, s:I}", "room_bytes",
								(json_int_t)p->cable->p.credit_blocks * CREDIT_BLOCK_BYTES, "left_bytes",
								(json_int_t)credits_left(p, c) * CREDIT_BLOCK_BYTES));
	}
	return o;
}

/* links_json() - What each port and its cable are now, faults included; no counters */
static json_t *links_json(const struct fabric *f)
{
	json_t *links = json_array();

	for (uint32_t k = 0; k < f->switch_count + f->nic_count; k++) {
		const struct node *n = f->nodes[k];
		for (uint16_t i = 0; i < n->port_count; i++) {
			const struct port *p = &n->ports[i];
			if (!p->cable || !p->peer)
				continue;
			json_t *o = json_pack("{s:s, s:i, s:b, s:I, s:i, s:I, s:i}", "node", n->name, "port",
					      (int)p->number, "up", (int)p->cable->p.up, "rate_bps",
					      (json_int_t)p->cable->p.rate_bps, "mtu", (int)p->cable->p.mtu,
					      "queue_bytes", (json_int_t)p->queued_bytes, "paused",
					      (int)p->paused);
			if (p->cable->p.credit_classes)
				json_object_set_new(o, "credits", credits_json(p));
			if (retry_on(p))
				json_object_set_new(o, "retry", json_pack("{s:I, s:I}", "buffer_bytes", (json_int_t)p->cable->p.retry_bytes,
									  "used_bytes", (json_int_t)(p->retry->sent - p->retry->acked)));
			json_array_append_new(links, o);
		}
	}
	return links;
}

static json_t *nic_json(const struct nic *n)
{
	json_t *o = json_object();

	json_object_set_new(o, "nic", json_string(n->n.name));
	NUMBER(o, "rank", n->rank);
#define COUNTER(field, name, unit, sort, meaning) NUMBER(o, #name, n->field);
#define RARE(field, name, unit, sort, meaning) NUMBER_IF(o, #name, n->field);
#define VALUE(expression, name, unit, sort, meaning) NUMBER(o, #name, expression);
#include "nic/counters.def"
	return o;
}

static json_t *qp_json(const struct qp *q)
{
	static const char *const states[] = {"connecting", "ready", "error"};
	json_t *o = json_object();

	NUMBER(o, "rank", q->nic->rank);
	NUMBER(o, "qp", q->number);
	NUMBER(o, "peer", q->connect_peer);
	NUMBER(o, "peer_qp", q->peer_number);
	json_object_set_new(o, "path", json_string(q->tx == &q->nic->tx[1] ? "scale_up" : "network"));
	json_object_set_new(o, "state", json_string(states[q->state]));
	NUMBER(o, "udp_src_port", q->src_port);
#define COUNTER(field, name, unit, sort, meaning) NUMBER(o, #name, q->field);
#define RARE(field, name, unit, sort, meaning) NUMBER_IF(o, #name, q->field);
#define VALUE(expression, name, unit, sort, meaning) NUMBER(o, #name, expression);
#include "transport/counters.def"
	json_object_set_new(o, "generated", json_boolean(q->owner->ops->generated));
	if (q->p != &q->nic->p)
		json_object_set_new(o, "cc", json_string(q->cc->name));
	return o;
}

static json_t *switch_json(const struct sw *s)
{
	json_t *o = json_pack("{s:s}", "switch", s->n.name);

#define COUNTER(field, name, unit, sort, meaning) NUMBER(o, #name, s->field);
#define RARE(field, name, unit, sort, meaning) NUMBER_IF(o, #name, s->field);
#define VALUE(expression, name, unit, sort, meaning) NUMBER(o, #name, expression);
#include "switch/counters.def"
	return o;
}

static json_t *fidelity_json(const struct fabric *f)
{
	const struct clock *c = &f->clock;
	json_t *o = json_object(), *late = json_object();
	uint64_t forwarding = 0, netdev = 0;

	for (uint32_t i = 0; i < f->switch_count; i++)
		forwarding += f->switches[i].forwarding_drops;
	for (uint32_t i = 0; i < f->nic_count; i++)
		netdev += f->nics[i].netdev_drops;
	json_object_set_new(o, "clock", json_string(c->mode == CLOCK_REAL ? "real" : "virtual"));
	NUMBER(o, "dilation", c->dilation);
	NUMBER(o, "frame_hops", f->ovs->hops);
	NUMBER(o, "forwarding_wall_ns", f->ovs->last_ns - f->ovs->first_ns);
	NUMBER(o, "forwarding_drops", forwarding);
	if (f->flow_cache) {
		const struct flow_cache *fast = f->flow_cache;
		NUMBER(o, "fast_hops", fast->hits);
		NUMBER(o, "fast_checked", fast->checked);
		NUMBER(o, "fast_stale", fast->stale);
		NUMBER(o, "tables_changed", fast->changed);
	}
	if (f->division) {
		NUMBER(o, "partitions", f->division->count);
		NUMBER(o, "windows", f->division->windows);
	}
	NUMBER(o, "flagged", f->ovs->flagged);
	json_object_set(o, "flagged_examples", f->ovs->flagged_examples);
	NUMBER(o, "controller_timeouts", c->controller_timeouts);
	NUMBER(o, "controller_silent", c->controller_silent);
	NUMBER(o, "rules_unconfirmed", f->ovs->unconfirmed);
	NUMBER(o, "fences", f->ovs->fences);
	NUMBER(o, "events", c->events);
	NUMBER(o, "netdev_drops", netdev);
	NUMBER(o, "unmodelled_losses", f->ovs->write_errors);
	NUMBER(late, "p50", clock_lateness_ns(f, 0.5));
	NUMBER(late, "p90", clock_lateness_ns(f, 0.9));
	NUMBER(late, "p99", clock_lateness_ns(f, 0.99));
	NUMBER(late, "max", c->lateness_max);
	json_object_set_new(o, "lateness_ns", late);
	return o;
}

/* counters_json() - All counters of the fabric */
json_t *counters_json(struct fabric *f)
{
	json_t *ports = json_array(), *drops = json_array(), *nics = json_array(), *qps = json_array(),
	       *switches = json_array(), *accelerators = json_array();

	for (uint32_t i = 0; i < f->switch_count; i++) {
		const struct sw *s = &f->switches[i];
		for (uint16_t k = 0; k < s->n.port_count; k++)
			port_json(f, &s->n.ports[k], ports, drops);
		json_array_append_new(switches, switch_json(s));
	}
	for (uint32_t i = 0; i < f->nic_count; i++) {
		struct nic *n = &f->nics[i];
		for (int k = 0; k < (n->scale_up ? 2 : 1); k++)
			port_json(f, &n->port[k], ports, drops);
		json_array_append_new(nics, nic_json(n));
		for (uint32_t k = 0; k < n->qp_count; k++)
			json_array_append_new(qps, qp_json(n->qps[k]));
	}
	for (uint32_t i = 0; i < f->accelerator_count; i++) {
		port_json(f, &f->accelerators[i].port, ports, drops);
		json_array_append_new(accelerators, accelerator_json(&f->accelerators[i]));
	}
	return json_pack("{s:o, s:o, s:o, s:o, s:o, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "shown", shown_json(f), "links", links_json(f), "groups", groups_json(f), "accelerators", accelerators, "faults", fault_counts_json(f), "deadlocks",
			 (json_int_t)f->deadlocks, "time_ns", ns_json(f->clock.now), "ports", ports, "nics",
			 nics, "qps", qps, "switches", switches, "drops", drops, "fidelity", fidelity_json(f));
}

static void paths_json(const struct qp *q, json_t *paths)
{
	const struct multipath *m = q->multipath;

	for (uint32_t e = 0; m && m->count && e < m->p.entropies; e++) {
		const struct path_count *c = &m->count[e];
		if (c->sent)
			json_array_append_new(paths, json_pack("{s:i, s:i, s:i, s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:o}", "qp", (int)q->number,
					      "peer", (int)q->connect_peer, "entropy", (int)e, "udp_src_port",
					      (int)roce_entropy_port(q->src_port, e), "sent", (json_int_t)c->sent, "returned",
					      (json_int_t)c->returned, "marked", (json_int_t)c->marked, "lost", (json_int_t)c->lost, "trimmed", (json_int_t)c->trimmed,
					      "timed", (json_int_t)c->timed, "took_ns", ns_json(c->took)));
	}
}

#define PATHS_OF_A_PAGE 4096

/* paths_answer() - What is known of the entropies of a rank's queue pairs, as many of these as fit on a page */
const char *paths_answer(struct fabric *f, struct control_conn *c, const json_t *request, json_t *answer)
{
	json_t *rank = json_object_get(request, "rank"), *from = json_object_get(request, "qp"), *paths = json_array();
	uint64_t k = json_is_integer(rank) ? (uint64_t)json_integer_value(rank) : UINT64_MAX;
	json_int_t first = from ? json_integer_value(from) : 0;

	(void)c;
	json_object_set_new(answer, "paths", paths);
	json_object_set_new(answer, "next", json_null());
	if (k >= f->nic_count)
		return "rank: there is none of that number";
	if (from && !json_is_integer(from))
		return "qp: a number";
	for (uint32_t i = 0; i < f->nics[k].qp_count; i++) {
		const struct qp *q = f->nics[k].qps[i];
		if (q->number < first)
			continue;
		if (json_array_size(paths) + (q->multipath ? q->multipath->p.entropies : 0) > PATHS_OF_A_PAGE && json_array_size(paths)) {
			json_object_set_new(answer, "next", json_integer(q->number));
			break;
		}
		paths_json(q, paths);
	}
	return NULL;
}

/* parameters_answer() - Not counted, but set */
const char *parameters_answer(struct fabric *f, struct control_conn *c, const json_t *request, json_t *answer)
{
	json_t *all = params_json(f, json_is_true(json_object_get(request, "meant")));

	(void)c;
	json_object_update(answer, all);
	json_decref(all);
	return NULL;
}
