/* Fields of the configuration's objects (fields.c) */
#ifndef CONFIG_FIELDS_H
#define CONFIG_FIELDS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/units.h"

struct fabric;

#define REQUIRED (-1e300) /* in the place of what is taken where nothing is said */

double number_of(struct fabric *f, const json_t *o, const char *key, double least, double most, double otherwise);
ps_t time_of(struct fabric *f, const json_t *o, const char *key, double otherwise_ns);
int64_t rate_of(struct fabric *f, const json_t *o, const char *key);
bool name_of(struct fabric *f, const json_t *o, const char *key, char *to, size_t room);

#endif
