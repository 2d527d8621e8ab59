/* The congestion controls by name, and their parameters by their keys: rates in bits/s, times in ns, sizes in bytes */
#ifndef CC_CC_H
#define CC_CC_H

#include <jansson.h>

#include "nic/params.h"

unsigned cc_find_param(const struct cc_algorithm *cc, const char *key);
const char *cc_set(struct nic_params *p, const json_t *o);
json_t *cc_json(const struct nic_params *p);

#endif
