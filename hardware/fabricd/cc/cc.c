/* Congestion controls and their parameters, by name. */
#include <string.h>

#include "cc/cc.h"
#include "nic/params.h"
#include "transport/congestion.h"

static const char *key_of(const struct cc_algorithm *cc, unsigned which)
{
	static const char *const common[CC_PARAMS] = {
		[CC_WINDOW] = "window_bytes", [CC_MIN_RATE] = "min_rate_bps", [CC_HOPS] = "hops",
		[CC_INITIAL] = "initial_bytes", [CC_GRANT] = "grant_packets", [CC_SHARE] = "pull_share",
		[CC_ASK] = "ask_again_ns", [CC_ACTIVE] = "overcommit",
	};

	return common[which] ? common[which] : cc->params[which];
}

/* cc_find_param() - The parameter of that key; CC_PARAMS: the control has none */
unsigned cc_find_param(const struct cc_algorithm *cc, const char *key)
{
	unsigned i = 0;

	while (i < CC_PARAMS && (!key_of(cc, i) || strcmp(key_of(cc, i), key)))
		i++;
	return i;
}

static bool known(const char *key)
{
	CC_EACH(cc)
		if (cc_find_param(cc, key) < CC_PARAMS)
			return true;
	return false;
}

/* The control of a NIC is another from now on; parameters that both have keep their values */
static bool choose(struct nic_params *p, const char *name)
{
	struct cc_params old = p->cc_params;

	CC_EACH(cc) {
		if (strcmp(cc->name, name))
			continue;
		for (unsigned i = CC_OWN; i < CC_CREDIT; i++) {
			unsigned was = cc->params[i] ? cc_find_param(p->cc, cc->params[i]) : CC_PARAMS;
			p->cc_params.v[i] = was < CC_PARAMS ? old.v[was] : 0;
		}
		p->cc = cc;
		return true;
	}
	return false;
}

/* cc_set() - Take over the control and the parameters that an object names.  What only another control has is passed over:
 * it may have been laid over a NIC whose control is another by now.
 * Return: NULL, or what is wrong
 */
const char *cc_set(struct nic_params *p, const json_t *o)
{
	const char *name = json_string_value(json_object_get(o, "algorithm")), *key;
	json_t *v;

	if (name && !choose(p, name))
		return "cc: algorithm: unknown";
	json_object_foreach(json_object_get(o, "params"), key, v) {
		double x = json_number_value(v);
		unsigned i = cc_find_param(p->cc, key);
		if (i == CC_PARAMS && !known(key))
			return "cc: params: an unknown parameter";
		if (!json_is_number(v) || !(x >= 0) || x > 1e15)
			return "cc: params: numbers from 0 to 1e15";
		if (i < CC_PARAMS)
			p->cc_params.v[i] = x;
	}
	return NULL;
}

/* cc_json() - A NIC's control, and its parameters that are not 0 */
json_t *cc_json(const struct nic_params *p)
{
	json_t *params = json_object();

	for (unsigned i = 0; i < CC_PARAMS; i++)
		if (p->cc_params.v[i] != 0)
			json_object_set_new(params, key_of(p->cc, i), json_real(p->cc_params.v[i]));
	return json_pack("{s:s, s:o}", "algorithm", p->cc->name, "params", params);
}
