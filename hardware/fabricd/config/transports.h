/* Transports: what queue pairs may send by instead of what their NICs have (transports.c) */
#ifndef CONFIG_TRANSPORTS_H
#define CONFIG_TRANSPORTS_H

#include <jansson.h>

struct fabric;

#define TRANSPORTS_MAX 1024 /* named at once */
#define TRANSPORTS_KNOWN 16384

const char *transport_known(struct fabric *f, json_t *transport, const json_t **known);
const char *transports_name(struct fabric *f, const json_t *list);

#endif
