/* The congestion controls by name: one file each */
#ifndef CC_CC_H
#define CC_CC_H

#include <jansson.h>

#include "transport/congestion.h"

const struct cc_algorithm *cc_find(const char *name);
const char *cc_params_set(struct cc_params *p, const json_t *o);

/* All controls: a new one gets its name here, and a file of its own that defines cc_NAME */
#define CC_CONTROLS(X) X(none) X(dcqcn) X(dctcp) X(timely) X(swift) X(hpcc) X(nscc)
#define CC_DECLARE(name) extern const struct cc_algorithm cc_##name;
CC_CONTROLS(CC_DECLARE)

#endif
