/* Parameters from JSON: the configuration's, and what faults lay over them.
 *
 * Each function takes any subset of a thing's keys, so that one table serves both.
 */
#include <jansson.h>
#include <string.h>

#include "config/params.h"
#include "config/values.h"
#include "link/credits.h"
#include "link/params.h"
#include "switch/adaptive.h"
#include "switch/params.h"

/* What a thing is when nothing is said: one shared buffer, no PFC, no ECN, the highest class first */
const struct switch_params switch_plain = {.alpha_1024 = 1024, .schedule.strict = 0xff, .dscp_class = {[48] = 6, [26] = 3}};

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
		if (!keyed(key, DSCPS - 1, &dscp) || !value_number(v, 0, CLASSES - 1, &class))
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
		if (!keyed(key, CLASSES - 1, &class) || !value_number(v, 1, 100, &weight))
			return "weights: classes from 0 to 7, each with a weight from 1 to 100";
		p->schedule.weight[class] = (uint8_t)weight;
	}
	return NULL;
}

static const char *set_shapers(struct schedule *s, const json_t *map)
{
	const char *key;
	json_t *v;
	unsigned class;

	json_object_foreach((json_t *)map, key, v) {
		struct shaper new = {0};
		const json_t *min = json_object_get(v, "min"), *max = json_object_get(v, "max"),
			     *bytes = json_object_get(v, "burst_bytes");
		if (!keyed(key, CLASSES - 1, &class) || (min && !value_number(min, 0, 1, &new.min)) ||
		    (max && !value_number(max, 0, 1, &new.max)) || (bytes && !value_bytes(bytes, &new.burst_bytes)))
			return "shapers: classes from 0 to 7, each with min and max from 0 to 1, and burst_bytes";
		s->shaper[class] = new;
		s->shaped = (uint8_t)(new.min > 0 || new.max > 0 ? s->shaped | 1u << class : s->shaped & ~(1u << class));
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
		if ((kmin && !value_bytes(kmin, &e.kmin_bytes)) || (kmax && !value_bytes(kmax, &e.kmax_bytes)) ||
		    (share && !value_number(share, 0, 1, &pmax)) || e.kmax_bytes < e.kmin_bytes)
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
	if (w.on && ((detect && !value_duration(detect, &w.detect)) || (restore && !value_duration(restore, &w.restore)) || !w.detect ||
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

static const char *set_adaptive(struct adaptive_params *p, const json_t *o)
{
	const json_t *v;
	double x;

	if (json_is_null(o)) {
		p->policy = NULL;
		return NULL;
	}
	if ((v = json_object_get(o, "policy"))) {
		if (!(p->policy = pick_policy_find(json_string_value(v))))
			return "adaptive: policy: two_choices, shortest, round_robin, random or hash";
		const char *wrong = pick_policy_set(p, json_object_get(o, "params"));
		if (wrong)
			return wrong;
	}
	if ((v = json_object_get(o, "flowlet_gap_ns")) && !value_duration(v, &p->flowlet_gap))
		return "adaptive: flowlet_gap_ns: from 0 to 1e12";
	if ((v = json_object_get(o, "flowlet_entries"))) {
		if (!value_number(v, 0, 1 << 20, &x))
			return "adaptive: flowlet_entries: from 0 to 1048576";
		p->flowlet_entries = (uint32_t)x;
	}
	if ((v = json_object_get(o, "basis"))) {
		if (!value_number(v, 0, 65535, &x))
			return "adaptive: basis: from 0 to 65535";
		p->basis = (uint32_t)x;
	}
	if ((v = json_object_get(o, "local_repair")))
		p->local_repair = json_is_true(v);
	if ((v = json_object_get(o, "bands"))) {
		if (!value_number(v, 0, 255, &x))
			return "adaptive: bands: from 0 to 255";
		p->bands = (uint8_t)x;
	}
	if ((v = json_object_get(o, "every_ns")) && !value_duration(v, &p->every))
		return "adaptive: every_ns: from 0 to 1e12";
	return p->bands && !p->every ? "adaptive: every_ns: more than 0, with bands" : NULL;
}

static const char *set_trimming(struct trim_params *p, const json_t *o)
{
	struct trim_params new = {.on = true};
	double bytes, dscp, queue, last;
	const json_t *v;

	if (json_is_null(o)) {
		p->on = false;
		return NULL;
	}
	if (!value_classes(json_object_get(o, "classes"), &new.classes))
		return "trimming: classes: a list of classes from 0 to 7";
	if (!value_number(json_object_get(o, "bytes"), 64, 1024, &bytes))
		return "trimming: bytes: from 64 to 1024";
	if (!value_number(json_object_get(o, "dscp"), 0, DSCPS - 1, &dscp))
		return "trimming: dscp: from 0 to 63";
	if (!value_number(json_object_get(o, "queue"), 0, CLASSES - 1, &queue) || new.classes >> (unsigned)queue & 1)
		return "trimming: queue: a class from 0 to 7 in which nothing is trimmed";
	last = dscp;
	if ((v = json_object_get(o, "last_hop_dscp")) && !value_number(v, 0, DSCPS - 1, &last))
		return "trimming: last_hop_dscp: from 0 to 63";
	new.bytes = (uint32_t)bytes;
	new.dscp = (uint8_t)dscp;
	new.last_hop_dscp = (uint8_t)last;
	new.queue = (uint8_t)queue;
	*p = new;
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

	if ((v = json_object_get(o, "buffer_bytes")) && (!value_bytes(v, &p->buffer_bytes) || !p->buffer_bytes))
		return "buffer_bytes: from 1 to 1e12";
	if ((v = json_object_get(o, "reserve_bytes")) && !value_bytes(v, &p->reserve_bytes))
		return "reserve_bytes: from 0 to 1e12";
	if ((v = json_object_get(o, "xon_offset_bytes")) && !value_bytes(v, &p->xon_offset_bytes))
		return "xon_offset_bytes: from 0 to 1e12";
	if ((v = json_object_get(o, "alpha"))) {
		if (!value_number(v, 1.0 / 1024, 64, &x))
			return "alpha: from 1/1024 to 64";
		p->alpha_1024 = (uint32_t)(x * 1024 + 0.5);
	}
	if ((v = json_object_get(o, "lossless")) && !value_classes(v, &p->lossless))
		return "lossless: a list of classes from 0 to 7";
	if ((v = json_object_get(o, "strict")) && !value_classes(v, &p->schedule.strict))
		return "strict: a list of classes from 0 to 7";
	if ((v = json_object_get(o, "dscp")))
		wrong = set_dscp(p, v);
	if (!wrong && (v = json_object_get(o, "weights")))
		wrong = set_weights(p, v);
	if (!wrong && (v = json_object_get(o, "shapers")))
		wrong = set_shapers(&p->schedule, v);
	if (!wrong && (v = json_object_get(o, "ecn")))
		wrong = set_ecn(p->ecn, v);
	if (!wrong && (v = json_object_get(o, "watchdog")))
		wrong = set_watchdog(p, v);
	if (!wrong && (v = json_object_get(o, "adaptive")))
		wrong = set_adaptive(&p->adaptive, v);
	if (!wrong && (v = json_object_get(o, "trimming")))
		wrong = set_trimming(&p->trim, v);
	if ((v = json_object_get(o, "accelerator_down")))
		p->accelerator_down = json_is_true(v);
	if ((v = json_object_get(o, "slots_leaked"))) {
		if (!value_number(v, 0, 65535, &x))
			return "slots_leaked: from 0 to 65535";
		p->slots_leaked = (uint32_t)x;
	}
	return wrong;
}

/* port_params_set() - Likewise of a port */
const char *port_params_set(struct port_params *p, const json_t *o)
{
	const json_t *v;

	if ((v = json_object_get(o, "headroom_bytes")) && !value_bytes(v, &p->headroom_bytes))
		return "headroom_bytes: from 0 to 1e12";
	if ((v = json_object_get(o, "port_ecn"))) {
		const char *wrong = set_ecn(p->ecn, v);
		if (wrong)
			return wrong;
		p->own_ecn = true;
	}
	if ((v = json_object_get(o, "stale_ns")) && !value_duration(v, &p->stale))
		return "stale_ns: from 0 to 1e12";
	if ((v = json_object_get(o, "pfc_rx")))
		p->pfc_rx = json_is_true(v);
	if ((v = json_object_get(o, "pfc_tx")))
		p->pfc_tx = json_is_true(v);
	return NULL;
}

/* cable_kept_set() - Likewise of a cable, what stays as long as the fabric lives: `credits` and `retry` */
const char *cable_kept_set(struct cable_params *p, const json_t *o)
{
	const json_t *credits = json_object_get(o, "credits"), *retry = json_object_get(o, "retry"), *v;
	double x;

	if (credits) {
		if (!value_number(json_object_get(credits, "room_bytes"), CREDIT_BLOCK_BYTES, 1e11, &x))
			return "credits: room_bytes: from 64 to 1e11";
		p->credit_blocks = (uint32_t)(x / CREDIT_BLOCK_BYTES);
		if (!value_classes(json_object_get(credits, "classes"), &p->credit_classes))
			return "credits: classes: a list of classes from 0 to 7";
		if ((v = json_object_get(credits, "resync_ns")) && !value_duration(v, &p->resync))
			return "credits: resync_ns: from 0 to 1e12";
	}
	if (retry && (!value_bytes(json_object_get(retry, "buffer_bytes"), &p->retry_bytes) || !p->retry_bytes))
		return "retry: buffer_bytes: from 1 to 1e12";
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
		if (!value_number(v, 1, 1e14, &x))
			return "rate_bps: from 1 to 1e14";
		p->rate_bps = (int64_t)x;
	}
	if ((v = json_object_get(o, "delay_ns")) && !value_duration(v, &p->delay))
		return "delay_ns: from 0 to 1e12";
	if ((v = json_object_get(o, "mtu"))) {
		if (!value_number(v, 64, 65535, &x))
			return "mtu: from 64 to 65535";
		p->mtu = (uint32_t)x;
	}
	return NULL;
}
