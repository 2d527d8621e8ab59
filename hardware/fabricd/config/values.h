/* Values of JSON: each takes one over, or says that it is none (values.c) */
#ifndef CONFIG_VALUES_H
#define CONFIG_VALUES_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/units.h"

bool value_number(const json_t *v, double least, double most, double *to);
bool value_bytes(const json_t *v, uint64_t *to);
bool value_duration(const json_t *v, ps_t *to);   /* of nanoseconds */
bool value_classes(const json_t *list, uint8_t *to); /* a bit a class */

#endif
