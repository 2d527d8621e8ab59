/* Values of JSON, checked. */
#include "base/units.h"
#include "config/values.h"
#include "link/params.h"

bool value_number(const json_t *v, double least, double most, double *to)
{
	*to = json_number_value(v);
	return json_is_number(v) && *to >= least && *to <= most;
}

bool value_bytes(const json_t *v, uint64_t *to)
{
	double x;

	if (!value_number(v, 0, 1e12, &x))
		return false;
	*to = (uint64_t)x;
	return true;
}

bool value_duration(const json_t *v, ps_t *to)
{
	double x;

	if (!value_number(v, 0, 1e12, &x))
		return false;
	*to = (ps_t)(x * PS_PER_NS + 0.5);
	return true;
}

bool value_classes(const json_t *list, uint8_t *to)
{
	size_t i;
	const json_t *v;
	double x;

	*to = 0;
	if (!json_is_array(list))
		return false;
	json_array_foreach(list, i, v) {
		if (!value_number(v, 0, CLASSES - 1, &x))
			return false;
		*to |= (uint8_t)(1u << (unsigned)x);
	}
	return true;
}
