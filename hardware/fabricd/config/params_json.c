/* Parameters as JSON: with the keys that set them (params.c, nic_params.c). */
#include <stdio.h>

#include "base/json.h"
#include "cc/cc.h"
#include "config/params.h"
#include "link/credits.h"
#include "link/params.h"
#include "multipath/multipath.h"
#include "switch/adaptive.h"
#include "switch/params.h"

static json_t *classes_json(uint8_t classes)
{
	json_t *list = json_array();

	for (int c = 0; c < CLASSES; c++)
		if (classes >> c & 1)
			json_array_append_new(list, json_integer(c));
	return list;
}

static void set_keyed(json_t *o, unsigned key, json_t *value)
{
	char name[16];

	snprintf(name, sizeof name, "%u", key);
	json_object_set_new(o, name, value);
}

static json_t *ecn_json(const struct ecn_params *of_class)
{
	json_t *o = json_object();

	CLASSES_EACH(c)
		if (of_class[c].on)
			set_keyed(o, c, json_pack("{s:I, s:I, s:f}", "kmin_bytes", (json_int_t)of_class[c].kmin_bytes,
						  "kmax_bytes", (json_int_t)of_class[c].kmax_bytes, "pmax",
						  of_class[c].pmax));
	return o;
}

static json_t *shapers_json(const struct schedule *s)
{
	json_t *o = json_object();

	CLASSES_EACH(c)
		if (s->shaped >> c & 1)
			set_keyed(o, c, json_pack("{s:f, s:f, s:I}", "min", s->shaper[c].min, "max", s->shaper[c].max,
						  "burst_bytes", (json_int_t)s->shaper[c].burst_bytes));
	return o;
}

static json_t *adaptive_json(const struct adaptive_params *a)
{
	return json_pack("{s:s, s:o*, s:o, s:i, s:b, s:i, s:o, s:i}", "policy", pick_policy_name(a->policy), "params",
			 pick_policy_params(a), "flowlet_gap_ns",
			 ns_json(a->flowlet_gap), "flowlet_entries", (int)a->flowlet_entries, "local_repair",
			 (int)a->local_repair, "bands", (int)a->bands, "every_ns", ns_json(a->every), "basis",
			 (int)a->basis);
}

/* switch_params_json() - All parameters of a switch */
json_t *switch_params_json(const struct switch_params *p)
{
	json_t *o = json_object(), *dscp = json_object(), *weights = json_object();

	NUMBER(o, "buffer_bytes", p->buffer_bytes);
	NUMBER(o, "reserve_bytes", p->reserve_bytes);
	NUMBER(o, "xon_offset_bytes", p->xon_offset_bytes);
	json_object_set_new(o, "alpha", json_real(p->alpha_1024 / 1024.0));
	json_object_set_new(o, "lossless", classes_json(p->lossless));
	json_object_set_new(o, "strict", classes_json(p->schedule.strict));
	for (unsigned k = 0; k < DSCPS; k++)
		set_keyed(dscp, k, json_integer(p->dscp_class[k]));
	json_object_set_new(o, "dscp", dscp);
	CLASSES_EACH(c)
		set_keyed(weights, c, json_integer(p->schedule.weight[c]));
	json_object_set_new(o, "weights", weights);
	if (p->schedule.shaped)
		json_object_set_new(o, "shapers", shapers_json(&p->schedule));
	json_object_set_new(o, "ecn", ecn_json(p->ecn));
	json_object_set_new(o, "watchdog",
			    p->watchdog.on ? json_pack("{s:o, s:o, s:s}", "detect_ns", ns_json(p->watchdog.detect),
						       "restore_ns", ns_json(p->watchdog.restore), "action",
						       p->watchdog.drop ? "drop" : "forward")
					   : json_null());
	if (p->adaptive.policy)
		json_object_set_new(o, "adaptive", adaptive_json(&p->adaptive));
	if (p->trim.on)
		json_object_set_new(o, "trimming",
				    json_pack("{s:o, s:i, s:i, s:i, s:i}", "classes", classes_json(p->trim.classes), "bytes",
					      (int)p->trim.bytes, "dscp", (int)p->trim.dscp, "last_hop_dscp",
					      (int)p->trim.last_hop_dscp, "queue", (int)p->trim.queue));
	json_object_set_new(o, "accelerator_down", json_boolean(p->accelerator_down));
	json_object_set_new(o, "slots_leaked", json_integer(p->slots_leaked));
	return o;
}

/* port_params_json() - Likewise of a port */
json_t *port_params_json(const struct port_params *p)
{
	json_t *o = json_pack("{s:I, s:b, s:b, s:o}", "headroom_bytes", (json_int_t)p->headroom_bytes, "pfc_rx",
			      (int)p->pfc_rx, "pfc_tx", (int)p->pfc_tx, "port_ecn",
			      p->own_ecn ? ecn_json(p->ecn) : json_null());

	if (p->stale)
		json_object_set_new(o, "stale_ns", ns_json(p->stale));
	return o;
}

/* cable_params_json() - Likewise of a cable */
json_t *cable_params_json(const struct cable_params *p)
{
	json_t *o = json_pack("{s:b, s:I, s:o, s:i}", "up", (int)p->up, "rate_bps", (json_int_t)p->rate_bps, "delay_ns",
			      ns_json(p->delay), "mtu", (int)p->mtu);

	if (p->credit_classes)
		json_object_set_new(o, "credits", json_pack("{s:I, s:o, s:o}", "room_bytes",
							    (json_int_t)p->credit_blocks * CREDIT_BLOCK_BYTES, "classes",
							    classes_json(p->credit_classes), "resync_ns", ns_json(p->resync)));
	if (p->retry_bytes)
		json_object_set_new(o, "retry", json_pack("{s:I}", "buffer_bytes", (json_int_t)p->retry_bytes));
	return o;
}

/* nic_params_json() - Likewise of a NIC; its reduction engine is not among them */
json_t *nic_params_json(const struct nic_params *p)
{
	json_t *o = json_object();
	const struct {
		const char *name;
		ps_t value;
	} times[] = {{"pcie_latency_ns", p->pcie_latency}, {"post_ns", p->post}, {"timeout_ns", p->timeout},
		     {"rnr_timeout_ns", p->rnr_timeout}, {"recv_delay_ns", p->recv_delay},
		     {"loss_after_ns", p->loss_after}};
	const struct {
		const char *name;
		uint64_t value;
	} numbers[] = {{"pcie_rate_bps", (uint64_t)p->pcie_bps}, {"tx_buffer_bytes", p->tx_buffer_bytes},
		       {"rx_buffer_bytes", p->rx_buffer_bytes}, {"rx_xoff_bytes", p->rx_xoff_bytes},
		       {"rx_xon_bytes", p->rx_xon_bytes}, {"ack_every", p->ack_every}, {"retry", p->retry},
		       {"retry_most", p->retry_most},
		       {"rnr_retry", p->rnr_retry}, {"reorder_packets", p->reorder_packets},
		       {"first_psn", p->first_psn}, {"sack_bits", p->sack_bits}, {"sack_every", p->sack_every},
		       {"trimmed_dscp", p->trimmed_dscp},
		       {"trimmed_last_hop_dscp", p->trimmed_last_hop_dscp}, {"data_dscp", p->data_dscp}, {"ack_dscp", p->ack_dscp}, {"cnp_dscp", p->cnp_dscp},
		       {"data_class", p->data_class}, {"ack_class", p->ack_class}, {"cnp_class", p->cnp_class}};

	for (size_t i = 0; i < sizeof times / sizeof times[0]; i++)
		json_object_set_new(o, times[i].name, ns_json(times[i].value));
	for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
		NUMBER(o, numbers[i].name, numbers[i].value);
	json_object_set_new(o, "lossless", classes_json(p->lossless));
	json_object_set_new(o, "storm", classes_json(p->storm));
	json_object_set_new(o, "slow", json_real(p->slow));
	json_object_set_new(o, "frozen", json_boolean(p->frozen));
	json_object_set_new(o, "takes_in_order", json_boolean(p->takes_in_order));
	json_object_set_new(o, "stale_rkeys", json_boolean(p->keys_stale[0]));
	json_object_set_new(o, "stale_lkeys", json_boolean(p->keys_stale[1]));
	json_object_set_new(o, "gids_moved", json_boolean(p->gids_moved));
	json_object_set_new(o, "probes", json_boolean(p->probes));
	json_object_set_new(o, "fixed_port", json_boolean(p->fixed_port));
	json_object_set_new(o, "recovery", json_string(p->selective ? "selective_repeat" : "go_back_n"));
	json_object_set_new(o, "ordering", json_string(p->any_order ? "any" : "in_order"));
	json_object_set_new(o, "cc", cc_json(p));
	json_object_set_new(o, "multipath", multipath_json(p));
	return o;
}
