/* The configuration: JSON in, a fabric out (config.c) */
#ifndef CONFIG_CONFIG_H
#define CONFIG_CONFIG_H

#include <jansson.h>
#include <stdbool.h>

struct fabric;

bool config_load(struct fabric *f, json_t *config);

#endif
