/* Parameters from JSON: each takes over what an object names, and returns NULL or what is wrong (params.c, nic_params.c);
 * and back (params_json.c)
 */
#ifndef CONFIG_PARAMS_H
#define CONFIG_PARAMS_H

#include <jansson.h>

#include "nic/params.h"
#include "switch/params.h"

const char *switch_params_set(struct switch_params *p, const json_t *o);
const char *port_params_set(struct port_params *p, const json_t *o);
const char *cable_params_set(struct cable_params *p, const json_t *o);
const char *cable_kept_set(struct cable_params *p, const json_t *o);
const char *nic_params_set(struct nic_params *p, const json_t *o);

json_t *switch_params_json(const struct switch_params *p);
json_t *port_params_json(const struct port_params *p);
json_t *cable_params_json(const struct cable_params *p);
json_t *nic_params_json(const struct nic_params *p);

#endif
