/* Fields of the configuration's objects: within bounds, or config_fail() says which is not. */
#include <string.h>

#include "base/units.h"
#include "config/fields.h"
#include "engine/fabric.h"

/* number_of() - What stands there, or @otherwise */
double number_of(struct fabric *f, const json_t *o, const char *key, double least, double most, double otherwise)
{
	const json_t *v = json_object_get(o, key);

	if (!v && otherwise >= least)
		return otherwise;
	double x = json_number_value(v);
	if (!json_is_number(v) || !(x >= least) || x > most) {
		config_fail(f, "%s: a number from %g to %g is needed", key, least, most);
		return least;
	}
	return x;
}

ps_t time_of(struct fabric *f, const json_t *o, const char *key, double otherwise_ns)
{
	return (ps_t)(number_of(f, o, key, 0, 1e12, otherwise_ns) * PS_PER_NS + 0.5);
}

int64_t rate_of(struct fabric *f, const json_t *o, const char *key)
{
	return (int64_t)number_of(f, o, key, 1, 1e14, REQUIRED);
}

/* name_of() - A name that fits into @room */
bool name_of(struct fabric *f, const json_t *o, const char *key, char *to, size_t room)
{
	const char *s = json_string_value(json_object_get(o, key));

	if (!s || !*s || strlen(s) >= room)
		return config_fail(f, "%s: a name of up to %zu characters is needed", key, room - 1);
	strcpy(to, s);
	return true;
}
