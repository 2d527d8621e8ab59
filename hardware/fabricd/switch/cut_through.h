/* Frames that leave a switch while they still come in (cut_through.c). */
#ifndef SWITCH_CUT_THROUGH_H
#define SWITCH_CUT_THROUGH_H

#include <stdbool.h>

#include "base/units.h"

struct fabric;
struct frame;
struct port;

ps_t cut_decides(struct port *in, const struct frame *fr, ps_t t_in);
bool cut_wholly(const struct frame *fr);
struct frame *cut_forward(struct fabric *f, struct port *out, struct frame *fr);

#endif
