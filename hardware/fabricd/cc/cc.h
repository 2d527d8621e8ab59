/* The congestion controls by name: one file each (transport/congestion.c has the list) */
#ifndef CC_CC_H
#define CC_CC_H

#include <jansson.h>

#include "transport/congestion.h"

const struct cc_algorithm *cc_find(const char *name);
const char *cc_params_set(struct cc_params *p, const json_t *o);

extern const struct cc_algorithm cc_dcqcn, cc_dctcp, cc_timely, cc_swift, cc_hpcc, cc_nscc;

#endif
