/* Policies of several paths and their parameters, by name. */
#include <string.h>

#include "multipath/multipath.h"
#include "nic/params.h"
#include "transport/multipath.h"
#include "wire/roce.h"

static bool set_param(struct multipath_params *p, const char *key, double x)
{
	for (unsigned i = 0; i < MULTIPATH_PARAMS; i++)
		if (p->policy->params[i] && !strcmp(p->policy->params[i], key)) {
			p->v[i] = x;
			return true;
		}
	return false;
}

/* multipath_set() - Take over what an object names, all of it anew; null: one path
 * Return: NULL, or what is wrong
 */
const char *multipath_set(struct nic_params *p, const json_t *o)
{
	const char *name = json_string_value(json_object_get(o, "policy")), *key;
	double entropies = json_number_value(json_object_get(o, "entropies"));
	struct multipath_params new = {.policy = name ? multipath_find(name) : NULL, .entropies = (uint32_t)entropies};
	json_t *v;

	if (json_is_null(o)) {
		p->multipath = (struct multipath_params){0};
		return NULL;
	}
	if (!new.policy)
		return "multipath: policy: unknown";
	if (!(entropies >= 1 && entropies <= ROCE_PORTS) || new.entropies != entropies || new.entropies & (new.entropies - 1))
		return "multipath: entropies: a power of two from 1 to 16384";
	json_object_foreach(json_object_get(o, "params"), key, v) {
		double x = json_number_value(v);
		if (!json_is_number(v) || !(x >= 0) || x > 1e15)
			return "multipath: params: numbers from 0 to 1e15";
		if (!set_param(&new, key, x))
			return "multipath: params: an unknown parameter";
	}
	const char *wrong = new.policy->wrong ? new.policy->wrong(new.v) : NULL;
	if (!wrong)
		p->multipath = new;
	return wrong;
}

/* multipath_json() - A NIC's policy and its parameters, or null */
json_t *multipath_json(const struct nic_params *p)
{
	const struct multipath_params *m = &p->multipath;
	json_t *params = json_object();

	for (unsigned i = 0; m->policy && i < MULTIPATH_PARAMS; i++)
		if (m->policy->params[i])
			json_object_set_new(params, m->policy->params[i], json_real(m->v[i]));
	if (m->policy)
		return json_pack("{s:s, s:i, s:o}", "policy", m->policy->name, "entropies", (int)m->entropies, "params", params);
	json_decref(params);
	return json_null();
}
