
/* ns_json() - A time in nanoseconds: an integer where it is one */
#include "base/json.h"
#include "base/units.h"

json_t *ns_json(ps_t t)
{
	return t % PS_PER_NS ? json_real((double)t / PS_PER_NS) : json_integer(t / PS_PER_NS);
}
