/* Numbers and emulated times as JSON has them. */
#include "base/json.h"
#include "base/units.h"

/* ns_json() - A time in nanoseconds: an integer where it is one */
json_t *ns_json(ps_t t)
{
	return t % PS_PER_NS ? json_real((double)t / PS_PER_NS) : json_integer(t / PS_PER_NS);
}

/* number_in() - The number of that key, from @least to @most (0 or more); otherwise -1 */
double number_in(const json_t *o, const char *key, double least, double most)
{
	const json_t *v = json_object_get(o, key);
	double x = json_number_value(v);

	return json_is_number(v) && x >= least && x <= most ? x : -1;
}
