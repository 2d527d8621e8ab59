/* Which class a port serves next (scheduler.c) */
#ifndef LINK_SCHEDULER_H
#define LINK_SCHEDULER_H

#include <stdint.h>

#define TURN_HOPS 5

struct fabric;
struct port;

unsigned scheduler_pick(const struct fabric *f, struct port *p, uint8_t ready);
void scheduler_reset(struct port *p);
uint8_t scheduler_held(const struct fabric *f, const struct port *p);
void scheduler_sent(const struct fabric *f, struct port *p, unsigned class, uint32_t bytes);

#endif
