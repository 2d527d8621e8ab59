/* Changes of cables: up, down, slower, elsewhere (cable.c) */
#ifndef LINK_CABLE_H
#define LINK_CABLE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "link/port.h"

/* A change of a cable, scheduled or announced */
struct change {
	struct cable *cable;
	bool set_up, up;
	int64_t rate_bps; /* 0: stays */
	ps_t delay;	  /* < 0: stays */
	struct change *next;
};

struct change *change_new(struct fabric *f, const struct change *what);
void cable_unplug(struct fabric *f, struct cable *cable);
void cable_plug(struct fabric *f, struct cable *cable);
void cable_restart(struct fabric *f, struct cable *cable);
void cable_in_force(struct fabric *f, struct cable *cable);
void cable_apply(struct fabric *f, struct change *c);
void cable_announce(struct fabric *f, struct change *c);
json_t *cables_known(struct fabric *f);
struct cable *fabric_cable(struct fabric *f, const char *name);

#endif
