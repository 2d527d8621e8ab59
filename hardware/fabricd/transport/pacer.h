/* When a queue pair's packets may leave the NIC (pacer.c) */
#ifndef TRANSPORT_PACER_H
#define TRANSPORT_PACER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/units.h"

struct fabric;
struct frame;
struct qp;

void pacer_kick(struct fabric *f, struct qp *q);
void pacer_event(struct fabric *f, struct qp *q, ps_t t);
bool pacer_full(const struct fabric *f, const struct qp *q);
bool pacer_passes(struct fabric *f, struct frame *fr);
void pacer_sent(struct fabric *f, struct frame *fr);
void pacer_gone(struct fabric *f, struct frame *fr);
void pacer_flush(struct fabric *f, struct qp *q);

#endif
