/* Counters as JSON: ports, NICs (mlx5's names), queue pairs, switches, drops, fidelity. */
#include <stdio.h>
#include <string.h>

#include "accelerator/accelerator.h"
#include "base/json.h"
#include "base/units.h"
#include "control/control.h"
#include "engine/clock.h"
#include "engine/fabric.h"
#include "fast_path/flow_cache.h"
#include "fault/fault.h"
#include "link/params.h"
#include "link/port.h"
#include "nic/nic.h"
#include "switch/ovs.h"
#include "switch/switch.h"
#include "transport/qp.h"
#include "wire/ethernet.h"

#define COUNT(object, name, value) json_object_set_new(object, name, json_integer((json_int_t)(value)))

/* What mlx5 and SONiC count for each priority; all zero ones are left out */
static void class_json(const struct fabric *f, const struct port *p, unsigned class, json_t *o)
{
	const struct traffic_class *tc = &p->tc[class];
	ps_t paused = tc->paused_total + (p->paused >> class & 1 ? f->clock.now - tc->paused_since : 0);
	const struct {
		const char *format;
		uint64_t value;
	} counts[] = {
		{"tx_prio%u_packets", tc->tx_frames},
		{"tx_prio%u_bytes", tc->tx_bytes},
		{"rx_prio%u_packets", tc->rx_frames},
		{"rx_prio%u_bytes", tc->rx_bytes},
		{"tx_prio%u_pause", tc->tx_pause},
		{"rx_prio%u_pause", tc->rx_pause},
		{"rx_prio%u_pause_transition", tc->pauses},
		{"rx_prio%u_pause_duration", (uint64_t)(paused / PS_PER_US)},
		{"ecn_marked_prio%u", tc->marked},
		{"drops_prio%u", tc->drops},
		{"drop_bytes_prio%u", tc->drop_bytes},
		{"queue_max_prio%u_bytes", tc->queue_max},
		{"ingress_max_prio%u_bytes", tc->in.max_bytes},
		{"headroom_max_prio%u_bytes", tc->in.headroom_max},
		{"pfcwd_storms_prio%u", tc->storms},
	};

	for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
		char name[48];
		if (!counts[i].value)
			continue;
		snprintf(name, sizeof name, counts[i].format, class);
		COUNT(o, name, counts[i].value);
	}
}

static void port_json(const struct fabric *f, const struct port *p, json_t *ports, json_t *drops)
{
	json_t *classes = json_object();
	uint64_t marked = 0;

	json_t *o = json_object(), *lost = json_object();
	char peer[NAME_BYTES + 16] = "";

	if (p->peer)
		snprintf(peer, sizeof peer, "%s:%u", p->peer->node->name, p->peer->number);
	json_object_set_new(o, "node", json_string(p->node->name));
	COUNT(o, "port", p->number);
	json_object_set_new(o, "peer", json_string(peer));
	COUNT(o, "tx_frames", p->tx_frames);
	COUNT(o, "tx_bytes", p->tx_bytes);
	COUNT(o, "rx_frames", p->rx_frames);
	COUNT(o, "rx_bytes", p->rx_bytes);
	COUNT(o, "queue_max_bytes", p->queued_max);
	for (int why = 0; why < DROPS; why++) {
		char text[256] = "";
		if (!p->drops[why])
			continue;
		COUNT(lost, drop_name((enum drop)why), p->drops[why]);
		if (p->last_drop[why])
			frame_describe(p->last_drop[why]->data, DROPPED_BYTES, p->last_drop[why]->len, text, sizeof text);
		json_array_append_new(drops, json_pack("{s:s, s:i, s:s, s:I, s:s}", "node", p->node->name, "port",
						       (int)p->number, "reason", drop_name((enum drop)why), "count",
						       (json_int_t)p->drops[why], "headers", text));
	}
	json_object_set_new(o, "drops", lost);
	for (unsigned c = 0; c < CLASSES; c++) {
		class_json(f, p, c, classes);
		marked += p->tc[c].marked;
	}
	COUNT(o, "ecn_marked", marked);
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
					COUNT(o, shown_name((enum shown)as), p->shown[as]);
			if (p->cut_off)
				COUNT(o, "cut_off", p->cut_off);
			if (p->rx_full)
				COUNT(o, "rx_full", p->rx_full);
			for (unsigned c = 0; c < CLASSES; c++) {
				char name[48];
				if (!p->tc[c].injected)
					continue;
				snprintf(name, sizeof name, "drops_prio%u", c);
				COUNT(o, name, p->tc[c].injected);
				snprintf(name, sizeof name, "drop_bytes_prio%u", c);
				COUNT(o, name, p->tc[c].injected_bytes);
			}
			if (json_object_size(o) > 2)
				json_array_append(list, o);
			json_decref(o);
		}
	return list;
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
			json_array_append_new(links,
					      json_pack("{s:s, s:i, s:b, s:I, s:i, s:I, s:i}", "node", n->name, "port",
							(int)p->number, "up", (int)p->cable->p.up, "rate_bps",
							(json_int_t)p->cable->p.rate_bps, "mtu", (int)p->cable->p.mtu,
							"queue_bytes", (json_int_t)p->queued_bytes, "paused",
							(int)p->paused));
		}
	}
	return links;
}

static void vport_json(json_t *o, const char *way, const struct vport *v)
{
	for (int multicast = 0; multicast < 2; multicast++) {
		const char *to = multicast ? "multicast" : "unicast";
		char name[48];
		snprintf(name, sizeof name, "%s_vport_rdma_%s_packets", way, to);
		COUNT(o, name, v->packets[multicast]);
		snprintf(name, sizeof name, "%s_vport_rdma_%s_bytes", way, to);
		COUNT(o, name, v->bytes[multicast]);
	}
}

static json_t *nic_json(const struct nic *n)
{
	json_t *o = json_object();

	json_object_set_new(o, "nic", json_string(n->n.name));
	COUNT(o, "rank", n->rank);
	vport_json(o, "tx", &n->tx_rdma);
	vport_json(o, "rx", &n->rx_rdma);
#define COUNTER(field, name, unit, meaning) COUNT(o, #name, n->field);
#include "nic/counters.def"
#undef COUNTER
	COUNT(o, "engine_used_bytes", n->engine_used);
	return o;
}

static json_t *qp_json(const struct qp *q)
{
	static const char *const states[] = {"connecting", "ready", "error"};
	json_t *o = json_object();

	COUNT(o, "rank", q->nic->rank);
	COUNT(o, "qp", q->number);
	COUNT(o, "peer", q->connect_peer);
	COUNT(o, "peer_qp", q->peer_number);
	json_object_set_new(o, "path", json_string(q->tx == &q->nic->tx[1] ? "scale_up" : "network"));
	json_object_set_new(o, "state", json_string(states[q->state]));
	COUNT(o, "udp_src_port", q->src_port);
	COUNT(o, "tx_packets", q->tx_packets);
	COUNT(o, "tx_bytes", q->tx_bytes);
	COUNT(o, "retransmitted", q->retransmitted);
	COUNT(o, "cnps", q->cnps);
	COUNT(o, "rate_bps", q->cc_state.rate);
	COUNT(o, "window_bytes", q->cc_state.window);
	json_object_set_new(o, "generated", json_boolean(q->owner->ops->generated));
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
	COUNT(o, "dilation", c->dilation);
	COUNT(o, "frame_hops", f->ovs->hops);
	COUNT(o, "forwarding_wall_ns", f->ovs->last_ns - f->ovs->first_ns);
	COUNT(o, "forwarding_drops", forwarding);
	if (f->flow_cache) {
		const struct flow_cache *fast = f->flow_cache;
		COUNT(o, "fast_hops", fast->hits);
		COUNT(o, "fast_checked", fast->checked);
		COUNT(o, "fast_stale", fast->stale);
		COUNT(o, "tables_changed", fast->changed);
	}
	COUNT(o, "flagged", f->ovs->flagged);
	json_object_set(o, "flagged_examples", f->ovs->flagged_examples);
	COUNT(o, "controller_timeouts", c->controller_timeouts);
	COUNT(o, "controller_silent", c->controller_silent);
	COUNT(o, "rules_unconfirmed", f->ovs->unconfirmed);
	COUNT(o, "fences", f->ovs->fences);
	COUNT(o, "events", c->events);
	COUNT(o, "netdev_drops", netdev);
	COUNT(o, "unmodelled_losses", f->ovs->write_errors);
	COUNT(late, "p50", clock_lateness_ns(f, 0.5));
	COUNT(late, "p90", clock_lateness_ns(f, 0.9));
	COUNT(late, "p99", clock_lateness_ns(f, 0.99));
	COUNT(late, "max", c->lateness_max);
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
		json_array_append_new(switches, json_pack("{s:s, s:I, s:I, s:I, s:I, s:I}", "switch", s->n.name, "frames_in",
							  (json_int_t)s->frames_in, "forwarding_drops",
							  (json_int_t)s->forwarding_drops, "buffer_max_bytes",
							  (json_int_t)s->used_max, "buffer_bytes",
							  (json_int_t)s->p.buffer_bytes, "buffer_used_bytes",
							  (json_int_t)s->used));
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
	return json_pack("{s:o, s:o, s:o, s:o, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "shown", shown_json(f), "links", links_json(f), "accelerators", accelerators, "faults", fault_counts_json(f), "deadlocks",
			 (json_int_t)f->deadlocks, "time_ns", ns_json(f->clock.now), "ports", ports, "nics",
			 nics, "qps", qps, "switches", switches, "drops", drops, "fidelity", fidelity_json(f));
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
