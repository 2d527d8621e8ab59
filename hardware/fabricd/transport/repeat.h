/* Selective repeat, sending side: what is to be sent again (repeat.c) */
#ifndef TRANSPORT_REPEAT_H
#define TRANSPORT_REPEAT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/units.h"

struct fabric;
struct qp;

void repeat_came(struct fabric *f, struct qp *q, uint64_t n);
void repeat_timeout(struct qp *q);
void repeat_acked(struct fabric *f, struct qp *q, uint64_t before, bool heard_of);
void repeat_forget(struct qp *q);
bool repeat_next(const struct qp *q, uint64_t *n);
void repeat_sent(struct qp *q);
void repeat_left(struct fabric *f, struct qp *q, uint64_t n);
ps_t repeat_due(const struct qp *q);
void repeat_ask(struct fabric *f, struct qp *q, bool idle, bool new);
void repeat_look(struct fabric *f, struct qp *q);
uint32_t repeat_found(struct qp *q);
uint64_t repeat_under_way(const struct qp *q);
uint64_t repeat_delivered(const struct qp *q);
void repeat_release(struct qp *q);

#endif
