/* ComputeEnhancer: the adder of a NIC
 *
 * Theory of Operation
 *
 * One unit, shared by everything that the NIC offloads; packets pass it one after the
 * other, in the order in which they came in.  Adding takes what the elements of one
 * operand take at nic.engine_reduce_bps, and every packet, added or not, at least
 * 1/engine_packets_per_s.  An addition begins when both operands are there: the packet,
 * and the local one that the GateKeeper reads ahead.
 *
 * Arithmetic is that of the element type, in the order (own, incoming): what a host
 * ring computes that does `own = own + incoming`, to the last bit.  float16,
 * bfloat16 and float8 are added in float32 and rounded to nearest even, after every
 * addition.  Integers wrap.  min and max of anything and a NaN are NaN.
 */
#include "base/units.h"
#include "engine/fabric.h"
#include "nic/params.h"
#include "offload/ring/ring.h"
#include "vector/element.h"

/* engine_combine() - @with becomes (mine, with); both aligned to their elements */
void engine_combine(enum element e, enum reduction how, uint8_t *with, const uint8_t *mine, size_t n)
{
	if (e == EL_FLOAT32 && (how == RED_SUM || how == RED_AVG)) {
		float *x = (float *)with;
		const float *y = (const float *)mine;
		for (size_t i = 0; i < n; i++)
			x[i] = y[i] + x[i];
	} else if (element_is_integer(e)) {
		for (size_t i = 0; i < n; i++)
			element_put_int(e, with, i,
					int_combined(how, element_get_int(e, mine, i), element_get_int(e, with, i)));
	} else {
		for (size_t i = 0; i < n; i++)
			element_put(e, with, i, float_combined(how, element_get(e, mine, i), element_get(e, with, i)));
	}
}

/* How long a packet keeps the engine; an optimizer passes once more over each array that it touches */
static ps_t service(const struct ring_member *r, const struct ring_arrival *a)
{
	const struct nic_params *p = &r->nic->p;
	uint32_t passes = a->add + (a->result && a->add ? optimizer_arrays(r->optimizer) : 0);
	double bits = 8.0 * a->elements * element_bytes[r->element] * passes;
	double adding = p->engine_reduce_bps ? bits * 1e12 / (double)p->engine_reduce_bps : 0;
	double handling = p->engine_packets_per_s ? 1e12 / (double)p->engine_packets_per_s : 0;

	return (ps_t)((adding > handling ? adding : handling) + 0.5);
}

/* engine_give() - Give the engine what both operands are there of, or known to come */
void engine_give(struct ring_member *r)
{
	for (; r->arrival_given != r->arrival_tail; r->arrival_given++) {
		struct ring_arrival *a = &r->arrival[r->arrival_given % r->arrival_room];
		ps_t t = a->t > r->f->clock.now ? a->t : r->f->clock.now;
		if (a->add) {
			const struct ring_read *l = &r->local.at[r->local.head % r->local.room];
			if (r->local.head == r->local.tail || (a->result && !result_room(r, true)))
				return;
			t = l->t > t ? l->t : t;
			r->local.head++;
			r->nic->engine_added++;
		}
		if (r->nic->engine_free > t)
			t = r->nic->engine_free;
		a->t = r->nic->engine_free = t + service(r, a);
		ring_later(r, a->t);
	}
}

/* engine_done() - Pass on what the engine is done with by now */
void engine_done(struct ring_member *r)
{
	while (r->arrival_head != r->arrival_given) {
		struct ring_arrival *a = &r->arrival[r->arrival_head % r->arrival_room];
		if (a->t > r->f->clock.now || (a->result && !result_room(r, false)))
			return;
		r->arrival_head++;
		r->local.ahead -= a->add;
		a->of->forwards_ready += a->forward;
		if (a->result)
			result_keep(r, a->of, a->elements * element_bytes[r->element]);
		else
			a->of->worked++;
	}
}
