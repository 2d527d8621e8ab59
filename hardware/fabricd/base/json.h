/* Emulated time as JSON has it. */
#ifndef BASE_JSON_H
#define BASE_JSON_H

#include <jansson.h>

#include "base/units.h"

json_t *ns_json(ps_t t);
double number_in(const json_t *o, const char *key, double least, double most);

#endif
