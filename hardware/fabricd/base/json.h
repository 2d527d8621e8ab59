/* Emulated time and numbers as JSON has them. */
#ifndef BASE_JSON_H
#define BASE_JSON_H

#include <jansson.h>

#include "base/units.h"

#define NUMBER(object, name, value) json_object_set_new(object, name, json_integer((json_int_t)(value)))
#define NUMBER_IF(object, name, value) \
	do { \
		if (value) \
			NUMBER(object, name, value); \
	} while (0)

json_t *ns_json(ps_t t);
double number_in(const json_t *o, const char *key, double least, double most);

#endif
