/* Congestion controls and their parameters, by name. */
#include <string.h>

#include "cc/cc.h"
#include "nic/params.h"
#include "transport/congestion.h"

CC_CONTROL(cc_none);

static const char *const names[CC_PARAMS] = {
#define CC_PARAM(which, name) [CC_##which] = name,
	CC_PARAM_TABLE(CC_PARAM)
#undef CC_PARAM
};

/* cc_find() - The control of that name, or NULL */
const struct cc_algorithm *cc_find(const char *name)
{
	REGISTRY_EACH(struct cc_algorithm, cc_controls, control)
		if (!strcmp((*control)->name, name))
			return *control;
	return NULL;
}

/* cc_params_set() - Take over the parameters that an object names
 * Return: NULL, or what is wrong
 */
const char *cc_params_set(struct cc_params *p, const json_t *o)
{
	const char *key;
	json_t *v;

	json_object_foreach((json_t *)o, key, v) {
		double x = json_number_value(v);
		int i = 0;
		while (i < CC_PARAMS && strcmp(names[i], key))
			i++;
		if (i == CC_PARAMS)
			return "cc: params: an unknown parameter";
		if (!json_is_number(v) || !(x >= 0) || x > 1e15)
			return "cc: params: numbers from 0 to 1e15";
		p->v[i] = x;
	}
	return NULL;
}
