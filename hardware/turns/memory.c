/* What a schedule does with its memory: copies, and reductions in C where there is a loop for them, else in Python. */
#include "turns.h"

#include <string.h>

#define SLICE_BYTES (4u << 20) /* of arithmetic between two signs of life */

/* copy() - What stands at @from goes where a step wants it, if it has not arrived in its place */
void copy(struct execution *x, uint32_t into, uint64_t at, struct place from, uint64_t bytes)
{
	uint8_t *to = x->memory[into] + at;
	const uint8_t *source = x->memory[from.region] + from.at;

	if (to != source)
		memmove(to, source, bytes);
}

/* combine() - What stands at @from is reduced into what stands @at */
void combine(struct turns *t, struct execution *x, uint32_t into, uint64_t at, struct place from, uint64_t bytes)
{
	if (!x->add) {
		t->asked.combine(x->number, into, at, from.region, from.at, bytes);
		return;
	}
	for (uint64_t done = 0; done < bytes; done += SLICE_BYTES) {
		uint64_t more = bytes - done < SLICE_BYTES ? bytes - done : SLICE_BYTES;
		x->add(x->memory[into] + at + done, x->memory[from.region] + from.at + done, more / x->plan->width);
		say_progress(t);
	}
}
