/* Selective repeat: what came ahead, and what is to be sent again (reorder.c) */
#ifndef TRANSPORT_REORDER_H
#define TRANSPORT_REORDER_H

#include <stdbool.h>
#include <stdint.h>

struct fabric;
struct frame;
struct qp;

bool reorder_keep(struct qp *q, uint32_t ahead, struct frame *fr);
struct frame *reorder_take(struct qp *q);
void reorder_drop(struct fabric *f, struct qp *q);
void reorder_release(struct qp *q);

void repeat_came(struct qp *q, uint64_t n);
void repeat_timeout(struct qp *q);
void repeat_acked(struct qp *q, uint64_t before);
void repeat_forget(struct qp *q);
bool repeat_next(const struct qp *q, uint64_t *n);
void repeat_sent(struct qp *q);

#endif
