/* Priority flow control (pfc.c) */
#ifndef LINK_PFC_H
#define LINK_PFC_H

#include <stdbool.h>
#include <stdint.h>

#include "base/units.h"

struct fabric;
struct frame;
struct port;

#define PFC_QUANTA 0xffff /* of a pause: the longest */

ps_t pfc_time(const struct port *p, uint16_t quanta);
void pfc_say(struct fabric *f, struct port *p, uint8_t classes, bool xoff);
void pfc_refresh(struct fabric *f, struct port *p);
void pfc_receive(struct fabric *f, struct port *p, struct frame *fr);
void pfc_hold(struct fabric *f, struct port *p, unsigned class, ps_t until);
void pfc_resume(struct fabric *f, struct port *p, unsigned class);
void pfc_waits(struct fabric *f, struct port *p);
void pfc_end(struct fabric *f, struct port *p, ps_t t);
void pfc_changed(struct fabric *f, struct port *p);

#endif
