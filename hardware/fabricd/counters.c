/* Counters as JSON: ports, NICs (mlx5's names), queue pairs, switches, drops, fidelity. */
#include <string.h>

#include "fabric.h"

#define COUNT(object, name, value) json_object_set_new(object, name, json_integer((json_int_t)(value)))

/* ns_json() - A time in nanoseconds: an integer where it is one */
json_t *ns_json(ps_t t)
{
	return t % PS_PER_NS ? json_real((double)t / PS_PER_NS) : json_integer(t / PS_PER_NS);
}

static void port_json(const struct port *p, json_t *ports, json_t *drops)
{
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
	json_array_append_new(ports, o);
}

static json_t *nic_json(const struct nic *n)
{
	json_t *o = json_object();

	json_object_set_new(o, "nic", json_string(n->n.name));
	COUNT(o, "rank", n->rank);
	COUNT(o, "tx_vport_rdma_unicast_packets", n->tx_packets);
	COUNT(o, "tx_vport_rdma_unicast_bytes", n->tx_bytes);
	COUNT(o, "rx_vport_rdma_unicast_packets", n->rx_packets);
	COUNT(o, "rx_vport_rdma_unicast_bytes", n->rx_bytes);
	COUNT(o, "out_of_sequence", n->out_of_sequence);
	COUNT(o, "packet_seq_err", n->packet_seq_err);
	COUNT(o, "duplicate_request", n->duplicate_request);
	COUNT(o, "local_ack_timeout_err", n->timeouts);
	COUNT(o, "rnr_nak_retry_err", n->rnr_naks);
	COUNT(o, "rx_icrc_encapsulated", n->icrc_errors);
	COUNT(o, "retransmitted", n->retransmitted);
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
	COUNT(o, "frame_hops", f->ovs.hops);
	COUNT(o, "forwarding_wall_ns", f->ovs.last_ns - f->ovs.first_ns);
	COUNT(o, "forwarding_drops", forwarding);
	COUNT(o, "flagged", f->ovs.flagged);
	json_object_set(o, "flagged_examples", f->ovs.flagged_examples);
	COUNT(o, "controller_timeouts", c->controller_timeouts);
	COUNT(o, "fences", f->ovs.fences);
	COUNT(o, "events", c->events);
	COUNT(o, "netdev_drops", netdev);
	COUNT(o, "unmodelled_losses", f->ovs.write_errors);
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
	       *switches = json_array();

	for (uint32_t i = 0; i < f->switch_count; i++) {
		const struct sw *s = &f->switches[i];
		for (uint16_t k = 0; k < s->n.port_count; k++)
			port_json(&s->n.ports[k], ports, drops);
		json_array_append_new(switches, json_pack("{s:s, s:I, s:I, s:I}", "switch", s->n.name, "frames_in",
							  (json_int_t)s->frames_in, "forwarding_drops",
							  (json_int_t)s->forwarding_drops, "buffer_max_bytes",
							  (json_int_t)s->used_max));
	}
	for (uint32_t i = 0; i < f->nic_count; i++) {
		struct nic *n = &f->nics[i];
		for (int k = 0; k < (n->scale_up ? 2 : 1); k++)
			port_json(&n->port[k], ports, drops);
		json_array_append_new(nics, nic_json(n));
		for (uint32_t k = 0; k < n->qp_count; k++)
			json_array_append_new(qps, qp_json(n->qps[k]));
	}
	return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "time_ns", ns_json(f->clock.now), "ports", ports, "nics",
			 nics, "qps", qps, "switches", switches, "drops", drops, "fidelity", fidelity_json(f));
}
