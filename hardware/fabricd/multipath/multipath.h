/* The policies by name, and their parameters by their keys: times in ns */
#ifndef MULTIPATH_MULTIPATH_H
#define MULTIPATH_MULTIPATH_H

#include <jansson.h>

#include "nic/params.h"

const char *multipath_set(struct nic_params *p, const json_t *o);
json_t *multipath_json(const struct nic_params *p);

#endif
