/* The congestion controls by name: a file each, which ends with CC_CONTROL(what it defines) */
#ifndef CC_CC_H
#define CC_CC_H

#include <jansson.h>

#include "base/registry.h"
#include "transport/congestion.h"

REGISTRY(struct cc_algorithm, cc_controls);
#define CC_CONTROL(control) REGISTER(cc_controls, control)

const struct cc_algorithm *cc_find(const char *name);
const char *cc_params_set(struct cc_params *p, const json_t *o);

#endif
