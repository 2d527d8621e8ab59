/* Selective repeat, sending side: what is to be sent again (repeat.c), and when to ask (probe.c) */
#ifndef TRANSPORT_REPEAT_H
#define TRANSPORT_REPEAT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/units.h"
#include "recovery/lost.h"

struct fabric;
struct qp;

struct repeat *repeat_of(struct qp *q);
void repeat_came(struct fabric *f, struct qp *q, uint64_t n);
void repeat_told(struct fabric *f, struct qp *q, uint64_t n);
void repeat_sack(struct fabric *f, struct qp *q, uint64_t first, const uint8_t *bits, uint32_t bytes);
void repeat_timeout(struct qp *q);
void repeat_acked(struct fabric *f, struct qp *q, uint64_t before, bool heard_of);
void repeat_forget(struct qp *q);
bool repeat_next(const struct qp *q, uint64_t *n);
void repeat_answers(struct qp *q, ps_t t);
bool repeat_enters(const struct qp *q);
bool repeat_is_news(const struct qp *q);
void repeat_sent(struct qp *q);
void repeat_left(struct fabric *f, struct qp *q, uint64_t n);
ps_t repeat_due(const struct qp *q);
void repeat_look(struct fabric *f, struct qp *q);
uint32_t repeat_found(struct qp *q);
uint64_t repeat_under_way(const struct qp *q);
uint64_t repeat_delivered(const struct qp *q);
void repeat_release(struct qp *q);
void probe_wait(struct repeat *r, const struct qp *q, ps_t now);
void probe_news(struct repeat *r, const struct qp *q, ps_t now);
void probe_ask(struct fabric *f, struct qp *q, bool idle, bool new);

#endif
