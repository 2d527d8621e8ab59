/* Selective repeat, sending side: what is to be sent again (repeat.c, lost.c), and when to ask (probe.c) */
#ifndef TRANSPORT_REPEAT_H
#define TRANSPORT_REPEAT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/units.h"
#include "recovery/holes.h"
#include "recovery/round_trip.h"

struct fabric;
struct qp;

struct repeat {
	struct holes holes;
	uint32_t open, lost; /* of them: not known to have come; and of those, to be sent again */
	uint32_t next;	   /* of the holes: before it none is lost */
	uint32_t over;	   /* of the holes: so many at the beginning have come */
	uint64_t uneven;   /* behind the last that was sent again, or of which it is not known when it left or was overtaken (lost.c) */
	uint64_t known;	   /* below this all has come but the holes */
	uint64_t came;	   /* behind the highest that has come */
	uint64_t turns, turn_came; /* times that something was sent again, and the last of them that came */
	uint64_t oldest, oldest_before; /* of what was sent again and is not known to have come, or 0: the first */
	uint32_t found;	   /* lost, and not reported yet: repeat_found() */
	ps_t window;	   /* that a hole waits, after lateness that was seen */
	ps_t latest;	   /* when what left last of all that has come had left */
	ps_t due;	   /* when the first wait is over, or PS_NEVER */
	uint32_t losses;   /* holes in a row that were lost, since one was late */
	struct round_trip trips;
	ps_t probe;	   /* when to ask, or PS_NEVER */
	uint32_t probes;   /* in a row, without an answer */
};

struct repeat *repeat_of(struct qp *q);
void repeat_came(struct fabric *f, struct qp *q, uint64_t n);
void repeat_sack(struct fabric *f, struct qp *q, uint64_t first, const uint8_t *bits, uint32_t bytes);
void repeat_missing(struct repeat *r, uint64_t end, ps_t since);
void repeat_lose(struct repeat *r, uint32_t i);
void repeat_judge(const struct qp *q, uint32_t i, ps_t now);
void repeat_uneven_until(struct repeat *r, uint64_t end);
ps_t repeat_left_at(const struct repeat *r, const struct hole *h);
void repeat_timeout(struct qp *q);
void repeat_acked(struct fabric *f, struct qp *q, uint64_t before, bool heard_of);
void repeat_forget(struct qp *q);
bool repeat_next(const struct qp *q, uint64_t *n);
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
