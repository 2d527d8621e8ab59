/* Parameters of a NIC from JSON: see params.c. */
#include <string.h>

#include "base/units.h"
#include "cc/cc.h"
#include "config/params.h"
#include "config/values.h"
#include "multipath/multipath.h"
#include "nic/params.h"
#include "wire/roce.h"

/* Its reduction engine */
static const char *set_engine(struct nic_params *p, const json_t *o)
{
	const json_t *v;
	double x;
	const struct {
		const char *key, *wrong;
		double most;
		uint64_t *to;
	} engine[] = {
		{"engine_reduce_bps", "engine_reduce_bps: from 0 to 1e14 (0: no limit)", 1e14, &p->engine_reduce_bps},
		{"engine_packets_per_s", "engine_packets_per_s: from 0 to 1e12 (0: no limit)", 1e12, &p->engine_packets_per_s},
		{"engine_memory_bytes", "engine_memory_bytes: from 0 to 1e12 (0: there is no engine)", 1e12, &p->engine_memory_bytes},
		{"engine_prefetch_bytes", "engine_prefetch_bytes: from 0 to 1e12", 1e12, &p->engine_prefetch_bytes},
	};

	for (size_t i = 0; i < sizeof engine / sizeof engine[0]; i++)
		if ((v = json_object_get(o, engine[i].key))) {
			if (!value_number(v, 0, engine[i].most, &x))
				return engine[i].wrong;
			*engine[i].to = (uint64_t)x;
		}
	return NULL;
}

/* What takes how long */
static const char *set_times(struct nic_params *p, const json_t *o)
{
	const json_t *v;
	const struct {
		const char *key, *wrong;
		ps_t *to;
	} times[] = {
		{"pcie_latency_ns", "pcie_latency_ns: from 0 to 1e12", &p->pcie_latency},
		{"post_ns", "post_ns: from 0 to 1e12", &p->post},
		{"timeout_ns", "timeout_ns: from 0 to 1e12", &p->timeout},
		{"rnr_timeout_ns", "rnr_timeout_ns: from 0 to 1e12", &p->rnr_timeout},
		{"recv_delay_ns", "recv_delay_ns: from 0 to 1e12", &p->recv_delay},
		{"loss_after_ns", "loss_after_ns: from 0 to 1e12", &p->loss_after},
	};

	for (size_t i = 0; i < sizeof times / sizeof times[0]; i++)
		if ((v = json_object_get(o, times[i].key)) && !value_duration(v, times[i].to))
			return times[i].wrong;
	return NULL;
}

/* Numbers */
static const char *set_counts(struct nic_params *p, const json_t *o)
{
	const json_t *v;
	double x;
	const struct {
		const char *key, *wrong;
		double least, most;
		uint32_t *to;
	} counts[] = {
		{"ack_every", "ack_every: from 1 to 1048576", 1, 1 << 20, &p->ack_every},
		{"retry", "retry: from 0 to 1000", 0, RETRIES_MAX, &p->retry},
		{"retry_most", "retry_most: from 0 to 1000", 0, RETRIES_MAX, &p->retry_most},
		{"rnr_retry", "rnr_retry: from 0 to 7", 0, 7, &p->rnr_retry},
		{"reorder_packets", "reorder_packets: from 1 to 65536", 1, 65536, &p->reorder_packets},
		{"first_psn", "first_psn: from 0 to 16777215", 0, PSN_MASK, &p->first_psn},
		{"sack_bits", "sack_bits: from 0 to 512", 0, SACK_BITS_MAX, &p->sack_bits},
		{"sack_every", "sack_every: from 1 to 65536", 1, 65536, &p->sack_every},
		{"trimmed_dscp", "trimmed_dscp: from 0 to 64 (64: none)", 0, DSCP_NONE, &p->trimmed_dscp},
		{"trimmed_last_hop_dscp", "trimmed_last_hop_dscp: from 0 to 64 (64: none)", 0, DSCP_NONE, &p->trimmed_last_hop_dscp},
		{"data_dscp", "data_dscp: from 0 to 63", 0, 63, &p->data_dscp},
		{"ack_dscp", "ack_dscp: from 0 to 63", 0, 63, &p->ack_dscp},
		{"cnp_dscp", "cnp_dscp: from 0 to 63", 0, 63, &p->cnp_dscp},
		{"data_class", "data_class: from 0 to 7", 0, 7, &p->data_class},
		{"ack_class", "ack_class: from 0 to 7", 0, 7, &p->ack_class},
		{"cnp_class", "cnp_class: from 0 to 7", 0, 7, &p->cnp_class},
	};

	for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
		if ((v = json_object_get(o, counts[i].key))) {
			if (!value_number(v, counts[i].least, counts[i].most, &x))
				return counts[i].wrong;
			*counts[i].to = (uint32_t)x;
		}
	return NULL;
}

/* PCIe, and what stands in the NIC */
static const char *set_buffers(struct nic_params *p, const json_t *o)
{
	const json_t *v;
	double x;

	if ((v = json_object_get(o, "pcie_rate_bps"))) {
		if (!value_number(v, 1, 1e14, &x))
			return "pcie_rate_bps: from 1 to 1e14";
		p->pcie_bps = (int64_t)x;
	}
	if ((v = json_object_get(o, "tx_buffer_bytes")) && (!value_bytes(v, &p->tx_buffer_bytes) || !p->tx_buffer_bytes))
		return "tx_buffer_bytes: from 1 to 1e12";
	if ((v = json_object_get(o, "rx_buffer_bytes")) && !value_bytes(v, &p->rx_buffer_bytes))
		return "rx_buffer_bytes: from 0 to 1e12 (0: without end)";
	if ((v = json_object_get(o, "rx_xoff_bytes")) && !value_bytes(v, &p->rx_xoff_bytes))
		return "rx_xoff_bytes: from 0 to 1e12";
	if ((v = json_object_get(o, "rx_xon_bytes")) && !value_bytes(v, &p->rx_xon_bytes))
		return "rx_xon_bytes: from 0 to 1e12";
	if ((v = json_object_get(o, "lossless")) && !value_classes(v, &p->lossless))
		return "lossless: a list of classes from 0 to 7";
	if ((v = json_object_get(o, "storm")) && !value_classes(v, &p->storm))
		return "storm: a list of classes from 0 to 7";
	return NULL;
}

/* The host, and how packets are recovered */
static const char *set_host(struct nic_params *p, const json_t *o)
{
	const json_t *v;
	double x;

	if ((v = json_object_get(o, "slow"))) {
		if (!value_number(v, 1, 1000, &x))
			return "slow: from 1 to 1000";
		p->slow = x;
	}
	if ((v = json_object_get(o, "frozen")))
		p->frozen = json_is_true(v);
	if ((v = json_object_get(o, "takes_in_order")))
		p->takes_in_order = json_is_true(v);
	if ((v = json_object_get(o, "stale_rkeys")))
		p->keys_stale[0] = json_is_true(v);
	if ((v = json_object_get(o, "stale_lkeys")))
		p->keys_stale[1] = json_is_true(v);
	if ((v = json_object_get(o, "gids_moved")))
		p->gids_moved = json_is_true(v);
	if ((v = json_object_get(o, "recovery"))) {
		const char *s = json_string_value(v);
		if (!s || (strcmp(s, "go_back_n") && strcmp(s, "selective_repeat")))
			return "recovery: go_back_n or selective_repeat";
		p->selective = !strcmp(s, "selective_repeat");
	}
	if ((v = json_object_get(o, "probes")))
		p->probes = json_is_true(v);
	if ((v = json_object_get(o, "fixed_port")))
		p->fixed_port = json_is_true(v);
	if ((v = json_object_get(o, "ordering"))) {
		const char *s = json_string_value(v);
		if (!s || (strcmp(s, "in_order") && strcmp(s, "any")))
			return "ordering: in_order or any";
		p->any_order = !strcmp(s, "any");
	}
	if (p->sack_bits % 32)
		return "sack_bits: a multiple of 32";
	return NULL;
}

/* nic_params_set() - Take over what an object names
 * Return: NULL, or what is wrong
 */
const char *nic_params_set(struct nic_params *p, const json_t *o)
{
	const char *(*const parts[])(struct nic_params *, const json_t *) = {set_engine, set_times, set_counts, set_buffers,
									       set_host};
	const json_t *cc = json_object_get(o, "cc"), *multipath = json_object_get(o, "multipath");
	const char *wrong = NULL;

	for (size_t i = 0; i < sizeof parts / sizeof parts[0] && !wrong; i++)
		wrong = parts[i](p, o);
	if (!wrong && cc)
		wrong = cc_set(p, cc);
	return wrong || !multipath ? wrong : multipath_set(p, multipath);
}
