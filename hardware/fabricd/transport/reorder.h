/* Selective repeat, receiving side: what came ahead (reorder.c) */
#ifndef TRANSPORT_REORDER_H
#define TRANSPORT_REORDER_H

#include <stdint.h>

struct fabric;
struct frame;
struct qp;

enum kept { KEPT_NOT, KEPT_BEFORE, KEPT };

enum kept reorder_keep(struct qp *q, uint32_t ahead, struct frame *fr);
struct frame *reorder_take(struct qp *q);
void reorder_drop(struct fabric *f, struct qp *q);
void reorder_release(struct qp *q);

#endif
