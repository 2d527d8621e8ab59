/* Optimizers in the NIC: gradients in, updated parameters out
 *
 * Theory of Operation
 *
 * As in OptimusNIC, a rank's part of the parameters, and what the optimizer remembers
 * of it, live in the NIC's memory.  When the gradients of a part are complete (the last
 * reducing hop), they become the new parameters, and those are what is gathered.
 *
 * float32 throughout, one rounding after each operation, in the order written here, so
 * that a host that computes alike gets the same bits (workloads/offloads/optimizers.py):
 *
 *	sgd	v = momentum v + g;  p = p - rate v
 *		(Sutskever et al., ICML 2013, in the form of PyTorch's SGD)
 *	adam	m = b1 m + (1 - b1) g;  v = b2 v + ((1 - b2) g) g
 *		p = p - (rate (c1 m)) / (sqrt(c2 v) + eps)
 *		(Kingma and Ba, ICLR 2015, algorithm 1; c1 = 1/(1 - b1^t) and c2 = 1/(1 - b2^t)
 *		are the caller's, who counts the steps)
 *
 * Arguments are pairs of float32, the first in the low half: sgd {rate, momentum}; adam
 * {rate, eps}, {b1, 1 - b1}, {b2, 1 - b2}, {c1, c2}.
 */
#include <math.h>
#include <string.h>

#include "offload/ring/ring.h"
#include "worker/services.h"

struct pair {
	float low, high;
};

static struct pair pair_of(uint64_t arg)
{
	struct pair p;

	memcpy(&p, &arg, sizeof p);
	return p;
}

/* optimizer_arrays() - Arrays that a step reads or writes besides the gradients */
uint32_t optimizer_arrays(enum ring_optimizer o)
{
	return o == OPT_NONE ? 0 : o == OPT_SGD ? 2 : 3;
}

/* optimizer_args_good() - Are the arguments of a step numbers? */
bool optimizer_args_good(enum ring_optimizer o, const struct offload_wr *wr)
{
	for (int i = 0; i < (o == OPT_SGD ? 1 : 4); i++) {
		struct pair p = pair_of(wr->args[i]);
		if (!isfinite(p.low) || !isfinite(p.high))
			return false;
	}
	return true;
}

/* optimizer_step() - @n gradients, of which the first is number @at of our part, become parameters */
void optimizer_step(const struct ring_member *r, const struct offload_wr *wr, uint64_t at, uint32_t n, float *gradients)
{
	float *p = r->parameters + at, *m = r->state[0] + at, *v = r->optimizer == OPT_ADAM ? r->state[1] + at : NULL;
	struct pair a = pair_of(wr->args[0]), b1 = pair_of(wr->args[1]), b2 = pair_of(wr->args[2]), c = pair_of(wr->args[3]);

	for (uint32_t i = 0; i < n; i++) {
		float g = gradients[i];
		if (v) {
			m[i] = b1.low * m[i] + b1.high * g;
			v[i] = b2.low * v[i] + (b2.high * g) * g;
			p[i] -= (a.low * (c.low * m[i])) / (sqrtf(c.high * v[i]) + a.high);
		} else {
			m[i] = a.high * m[i] + g;
			p[i] -= a.low * m[i];
		}
		gradients[i] = p[i];
	}
}
