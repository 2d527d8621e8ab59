/* Parameters from JSON: the configuration's, and what faults lay over them.
 *
 * Each function takes any subset of a thing's keys, so that one table serves both.
 */
#include <jansson.h>
#include <string.h>

#include "base/units.h"
#include "cc/cc.h"
#include "config/params.h"
#include "engine/fabric.h"
#include "link/params.h"
#include "nic/params.h"
#include "switch/params.h"
#include "transport/congestion.h"

/* What a thing is when nothing is said: one shared buffer, no PFC, no ECN, the highest class first */
const struct switch_params switch_plain = {.alpha_1024 = 1024, .schedule.strict = 0xff};

static bool number(const json_t *v, double least, double most, double *to)
{
	*to = json_number_value(v);
	return json_is_number(v) && *to >= least && *to <= most;
}

static bool bytes(const json_t *v, uint64_t *to)
{
	double x;

	if (!number(v, 0, 1e12, &x))
		return false;
	*to = (uint64_t)x;
	return true;
}

static bool duration(const json_t *v, ps_t *to)
{
	double x;

	if (!number(v, 0, 1e12, &x))
		return false;
	*to = (ps_t)(x * PS_PER_NS + 0.5);
	return true;
}

static bool classes(const json_t *list, uint8_t *to)
{
	size_t i;
	const json_t *v;
	double x;

	*to = 0;
	if (!json_is_array(list))
		return false;
	json_array_foreach(list, i, v) {
		if (!number(v, 0, CLASSES - 1, &x))
			return false;
		*to |= (uint8_t)(1u << (unsigned)x);
	}
	return true;
}

static bool keyed(const char *key, long most, unsigned *to)
{
	char *end;
	long n = strtol(key, &end, 10);

	*to = (unsigned)n;
	return *key && !*end && n >= 0 && n <= most;
}

static const char *set_dscp(struct switch_params *p, const json_t *map)
{
	const char *key;
	json_t *v;
	unsigned dscp;
	double class;

	json_object_foreach((json_t *)map, key, v) {
		if (!keyed(key, DSCPS - 1, &dscp) || !number(v, 0, CLASSES - 1, &class))
			return "dscp: DSCPs from 0 to 63, each with a class from 0 to 7";
		p->dscp_class[dscp] = (uint8_t)class;
	}
	return NULL;
}

static const char *set_weights(struct switch_params *p, const json_t *map)
{
	const char *key;
	json_t *v;
	unsigned class;
	double weight;

	json_object_foreach((json_t *)map, key, v) {
		if (!keyed(key, CLASSES - 1, &class) || !number(v, 1, 100, &weight))
			return "weights: classes from 0 to 7, each with a weight from 1 to 100";
		p->schedule.weight[class] = (uint8_t)weight;
	}
	return NULL;
}

static const char *set_ecn(struct ecn_params *of_class, const json_t *map)
{
	const char *key;
	json_t *v;
	unsigned class;

	json_object_foreach((json_t *)map, key, v) {
		struct ecn_params e;
		double pmax;
		if (!keyed(key, CLASSES - 1, &class))
			return "ecn: classes from 0 to 7";
		e = of_class[class];
		pmax = e.pmax;
		if (json_is_null(v)) {
			of_class[class].on = false;
			continue;
		}
		e.on = true;
		const json_t *kmin = json_object_get(v, "kmin_bytes"), *kmax = json_object_get(v, "kmax_bytes"),
			     *share = json_object_get(v, "pmax");
		if ((kmin && !bytes(kmin, &e.kmin_bytes)) || (kmax && !bytes(kmax, &e.kmax_bytes)) ||
		    (share && !number(share, 0, 1, &pmax)) || e.kmax_bytes < e.kmin_bytes)
			return "ecn: kmin_bytes <= kmax_bytes, pmax from 0 to 1";
		e.pmax = pmax;
		of_class[class] = e;
	}
	return NULL;
}

static const char *set_watchdog(struct switch_params *p, const json_t *v)
{
	struct watchdog_params w = p->watchdog;
	const json_t *detect = json_object_get(v, "detect_ns"), *restore = json_object_get(v, "restore_ns"),
		     *action = json_object_get(v, "action");

	w.on = !json_is_null(v);
	if (w.on && ((detect && !duration(detect, &w.detect)) || (restore && !duration(restore, &w.restore)) || !w.detect ||
		     !w.restore))
		return "watchdog: detect_ns and restore_ns: more than 0";
	if (action) {
		const char *s = json_string_value(action);
		if (!s || (strcmp(s, "drop") && strcmp(s, "forward")))
			return "watchdog: action: drop or forward";
		w.drop = !strcmp(s, "drop");
	}
	p->watchdog = w;
	return NULL;
}

/* switch_params_set() - Take over what @o says of a switch; other keys are left alone
 * Return: NULL, or what is wrong
 */
const char *switch_params_set(struct switch_params *p, const json_t *o)
{
	const json_t *v;
	const char *wrong = NULL;
	double x;

	if ((v = json_object_get(o, "buffer_bytes")) && (!bytes(v, &p->buffer_bytes) || !p->buffer_bytes))
		return "buffer_bytes: from 1 to 1e12";
	if ((v = json_object_get(o, "reserve_bytes")) && !bytes(v, &p->reserve_bytes))
		return "reserve_bytes: from 0 to 1e12";
	if ((v = json_object_get(o, "xon_offset_bytes")) && !bytes(v, &p->xon_offset_bytes))
		return "xon_offset_bytes: from 0 to 1e12";
	if ((v = json_object_get(o, "alpha"))) {
		if (!number(v, 1.0 / 1024, 64, &x))
			return "alpha: from 1/1024 to 64";
		p->alpha_1024 = (uint32_t)(x * 1024 + 0.5);
	}
	if ((v = json_object_get(o, "lossless")) && !classes(v, &p->lossless))
		return "lossless: a list of classes from 0 to 7";
	if ((v = json_object_get(o, "strict")) && !classes(v, &p->schedule.strict))
		return "strict: a list of classes from 0 to 7";
	if ((v = json_object_get(o, "dscp")))
		wrong = set_dscp(p, v);
	if (!wrong && (v = json_object_get(o, "weights")))
		wrong = set_weights(p, v);
	if (!wrong && (v = json_object_get(o, "ecn")))
		wrong = set_ecn(p->ecn, v);
	if (!wrong && (v = json_object_get(o, "watchdog")))
		wrong = set_watchdog(p, v);
	if ((v = json_object_get(o, "accelerator_down")))
		p->accelerator_down = json_is_true(v);
	return wrong;
}

/* port_params_set() - Likewise of a port */
const char *port_params_set(struct port_params *p, const json_t *o)
{
	const json_t *v;

	if ((v = json_object_get(o, "headroom_bytes")) && !bytes(v, &p->headroom_bytes))
		return "headroom_bytes: from 0 to 1e12";
	if ((v = json_object_get(o, "port_ecn"))) {
		const char *wrong = set_ecn(p->ecn, v);
		if (wrong)
			return wrong;
		p->own_ecn = true;
	}
	if ((v = json_object_get(o, "pfc_rx")))
		p->pfc_rx = json_is_true(v);
	if ((v = json_object_get(o, "pfc_tx")))
		p->pfc_tx = json_is_true(v);
	return NULL;
}

/* cable_params_set() - Likewise of a cable */
const char *cable_params_set(struct cable_params *p, const json_t *o)
{
	const json_t *v;
	double x;

	if ((v = json_object_get(o, "up"))) {
		if (!json_is_boolean(v))
			return "up: true or false";
		p->up = json_is_true(v);
	}
	if ((v = json_object_get(o, "rate_bps"))) {
		if (!number(v, 1, 1e14, &x))
			return "rate_bps: from 1 to 1e14";
		p->rate_bps = (int64_t)x;
	}
	if ((v = json_object_get(o, "delay_ns")) && !duration(v, &p->delay))
		return "delay_ns: from 0 to 1e12";
	if ((v = json_object_get(o, "mtu"))) {
		if (!number(v, 64, 65535, &x))
			return "mtu: from 64 to 65535";
		p->mtu = (uint32_t)x;
	}
	return NULL;
}

static const char *set_cc(struct fabric *f, struct nic_params *p, const json_t *v)
{
	const char *name = json_string_value(json_object_get(v, "algorithm"));

	if (name) {
		const struct cc_algorithm *cc = cc_find(name);
		if (!cc)
			return "cc: algorithm: unknown";
		p->cc = cc;
	}
	(void)f;
	return cc_params_set(&p->cc_params, json_object_get(v, "params"));
}

/* nic_params_set() - Likewise of a NIC */
const char *nic_params_set(struct fabric *f, struct nic_params *p, const json_t *o)
{
	const json_t *v;
	double x;
	const struct {
		const char *key, *wrong;
		ps_t *to;
	} times[] = {
		{"pcie_latency_ns", "pcie_latency_ns: from 0 to 1e12", &p->pcie_latency},
		{"post_ns", "post_ns: from 0 to 1e12", &p->post},
		{"timeout_ns", "timeout_ns: from 0 to 1e12", &p->timeout},
		{"rnr_timeout_ns", "rnr_timeout_ns: from 0 to 1e12", &p->rnr_timeout},
		{"recv_delay_ns", "recv_delay_ns: from 0 to 1e12", &p->recv_delay},
	};
	const struct {
		const char *key, *wrong;
		double least, most;
		uint32_t *to;
	} counts[] = {
		{"ack_every", "ack_every: from 1 to 1048576", 1, 1 << 20, &p->ack_every},
		{"retry", "retry: from 0 to 1000", 0, 1000, &p->retry},
		{"rnr_retry", "rnr_retry: from 0 to 7", 0, 7, &p->rnr_retry},
		{"reorder_packets", "reorder_packets: from 1 to 65536", 1, 65536, &p->reorder_packets},
		{"data_dscp", "data_dscp: from 0 to 63", 0, 63, &p->data_dscp},
		{"ack_dscp", "ack_dscp: from 0 to 63", 0, 63, &p->ack_dscp},
		{"cnp_dscp", "cnp_dscp: from 0 to 63", 0, 63, &p->cnp_dscp},
		{"data_class", "data_class: from 0 to 7", 0, 7, &p->data_class},
		{"ack_class", "ack_class: from 0 to 7", 0, 7, &p->ack_class},
		{"cnp_class", "cnp_class: from 0 to 7", 0, 7, &p->cnp_class},
	};

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
			if (!number(v, 0, engine[i].most, &x))
				return engine[i].wrong;
			*engine[i].to = (uint64_t)x;
		}
	for (size_t i = 0; i < sizeof times / sizeof times[0]; i++)
		if ((v = json_object_get(o, times[i].key)) && !duration(v, times[i].to))
			return times[i].wrong;
	for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
		if ((v = json_object_get(o, counts[i].key))) {
			if (!number(v, counts[i].least, counts[i].most, &x))
				return counts[i].wrong;
			*counts[i].to = (uint32_t)x;
		}
	if ((v = json_object_get(o, "pcie_rate_bps"))) {
		if (!number(v, 1, 1e14, &x))
			return "pcie_rate_bps: from 1 to 1e14";
		p->pcie_bps = (int64_t)x;
	}
	if ((v = json_object_get(o, "tx_buffer_bytes")) && (!bytes(v, &p->tx_buffer_bytes) || !p->tx_buffer_bytes))
		return "tx_buffer_bytes: from 1 to 1e12";
	if ((v = json_object_get(o, "rx_buffer_bytes")) && !bytes(v, &p->rx_buffer_bytes))
		return "rx_buffer_bytes: from 0 to 1e12 (0: without end)";
	if ((v = json_object_get(o, "rx_xoff_bytes")) && !bytes(v, &p->rx_xoff_bytes))
		return "rx_xoff_bytes: from 0 to 1e12";
	if ((v = json_object_get(o, "rx_xon_bytes")) && !bytes(v, &p->rx_xon_bytes))
		return "rx_xon_bytes: from 0 to 1e12";
	if ((v = json_object_get(o, "lossless")) && !classes(v, &p->lossless))
		return "lossless: a list of classes from 0 to 7";
	if ((v = json_object_get(o, "storm")) && !classes(v, &p->storm))
		return "storm: a list of classes from 0 to 7";
	if ((v = json_object_get(o, "slow"))) {
		if (!number(v, 1, 1000, &x))
			return "slow: from 1 to 1000";
		p->slow = x;
	}
	if ((v = json_object_get(o, "frozen")))
		p->frozen = json_is_true(v);
	if ((v = json_object_get(o, "recovery"))) {
		const char *s = json_string_value(v);
		if (!s || (strcmp(s, "go_back_n") && strcmp(s, "selective_repeat")))
			return "recovery: go_back_n or selective_repeat";
		p->selective = !strcmp(s, "selective_repeat");
	}
	return (v = json_object_get(o, "cc")) ? set_cc(f, p, v) : NULL;
}
