/* Blocks of a vector in a worker's memory, and as the int32 that travel in their place
 *
 * Theory of Operation
 *
 * Floating-point numbers travel as fixed point: a block is multiplied by
 * 2^(30 - e - ceil(log2 n)), where e is the largest exponent of that block of any of
 * the n ranks.  The scale is a power of two, so a value that needs no more than the
 * bits that are left is exact; others are rounded to the nearest, each by half of
 * 2^(e + ceil(log2 n) - 30) at most.  A block in which some rank has an infinity or a
 * NaN becomes NaN everywhere.
 *
 * The least or the largest of them is exact: they travel as integers of the same order.
 */
#include <math.h>
#include <string.h>

#include "base/units.h"
#include "nic/nic.h"
#include "offload/block.h"
#include "offload/offload.h"
#include "vector/element.h"
#include "worker/services.h"
#include "worker/worker.h"

#define MANTISSA_BITS 30

static int shift_of(const struct member *m, int exponent)
{
	int log_ranks = 0;

	while (1u << log_ranks < m->group->count)
		log_ranks++;
	return MANTISSA_BITS - exponent - log_ranks;
}

/* block_check() - Can the vectors of a request be added up as int32, and are they the worker's?
 * Return: NULL, or what is wrong
 */
const char *block_check(const struct member *m, const struct offload_wr *wr)
{
	struct worker *w = m->nic->worker;

	if (!reduction_fits(wr->reduction, wr->element) || wr->reduction == RED_PROD)
		return "POST_OFFLOAD: aggregation: sum, avg, min, max, and bits of integers";
	if (wr->collective >= BLOCKS_WANTED || wr->args[BLOCKS_WHO] >= m->group->count)
		return "POST_OFFLOAD: aggregation: sums are for all, for one member, or in parts";
	if (!wr->count || wr->count > 1ull << 34)
		return "POST_OFFLOAD: aggregation: from 1 to 2^34 elements";
	uint64_t whole = wr->args[BLOCKS_WHOLE];
	if (whole && (whole > 1ull << 34 || whole < wr->count || wr->args[BLOCKS_FIRST] > whole - wr->count))
		return "POST_OFFLOAD: aggregation: a share of a vector lies in it, which has up to 2^34 elements";
	uint64_t bytes = wr->count * element_bytes[wr->element];
	if (!worker_region(w, wr->in_key, wr->in, bytes) || !worker_region(w, wr->out_key, wr->out, bytes))
		return "POST_OFFLOAD: unknown key, or range outside its region";
	return NULL;
}

/* block_is_scaled() - Whether its elements travel as multiples of what all ranks have agreed on */
bool block_is_scaled(const struct offload_wr *wr)
{
	return !element_is_integer(wr->element) && reduction_adds(wr->reduction);
}

/* A block in memory, or NULL if the worker has gone */
static uint8_t *memory(const struct member *m, uint32_t key, uint64_t at, uint64_t bytes)
{
	return worker_memory(m->nic->worker, key, at, bytes);
}

/* block_count() - How many elements the block has */
uint32_t block_count(const struct offload_wr *wr, uint32_t elements, uint64_t block)
{
	uint64_t left = wr->count - block * elements;

	return left < elements ? (uint32_t)left : elements;
}

/* Whose part an element is in: parts are equal, or one longer in front */
static uint64_t part_of(uint64_t count, uint32_t parts, uint64_t element)
{
	uint64_t each = count / parts, longer = count % parts;

	return element < (each + 1) * longer ? element / (each + 1) : longer + (element - (each + 1) * longer) / each;
}

/* block_owner() - The address of the rank that alone wants a block's sum, or 0: all want it, or more than one */
uint32_t block_owner(const struct member *m, const struct offload_wr *wr, uint32_t elements, uint64_t block)
{
	const struct group *g = m->group;
	uint64_t whole = wr->args[BLOCKS_WHOLE] ? wr->args[BLOCKS_WHOLE] : wr->count;
	uint64_t first = (wr->args[BLOCKS_WHOLE] ? wr->args[BLOCKS_FIRST] : 0) + block * elements;

	if (wr->collective == BLOCKS_TO_ALL)
		return 0;
	if (wr->collective == BLOCKS_TO_ONE)
		return g->member[wr->args[BLOCKS_WHO]].nic->ip;
	uint64_t part = part_of(whole, g->count, first);
	if (part != part_of(whole, g->count, first + block_count(wr, elements, block) - 1))
		return 0;
	return g->member[part].nic->ip;
}

/* block_exponent() - The largest exponent in a block of ours */
int16_t block_exponent(const struct member *m, const struct offload_wr *wr, uint32_t elements, uint64_t block)
{
	uint32_t size = element_bytes[wr->element];

	if (!block_is_scaled(wr) || block * elements >= wr->count)
		return EXPONENT_ZERO;
	uint32_t count = block_count(wr, elements, block);
	const uint8_t *in = memory(m, wr->in_key, wr->in + block * elements * size, (uint64_t)count * size);
	return in ? (int16_t)element_exponent(wr->element, in, count) : EXPONENT_ZERO;
}

/* block_read() - A block of ours as int32
 * @exponent:	What all ranks have agreed on for it
 */
void block_read(const struct member *m, const struct offload_wr *wr, uint32_t elements, uint64_t block, int exponent,
		int32_t *to)
{
	uint32_t size = element_bytes[wr->element], count = block_count(wr, elements, block);
	const uint8_t *in = memory(m, wr->in_key, wr->in + block * elements * size, (uint64_t)count * size);

	if (!in || (block_is_scaled(wr) && (exponent == EXPONENT_ZERO || exponent == EXPONENT_BAD))) {
		memset(to, 0, 4u * count);
		return;
	}
	for (uint32_t i = 0; element_is_integer(wr->element) && i < count; i++)
		to[i] = element_get_int(wr->element, in, i);
	if (block_is_scaled(wr))
		element_to_fixed(wr->element, in, count, shift_of(m, exponent), to);
	else if (!element_is_integer(wr->element))
		element_to_ordered(wr->element, in, count, wr->reduction == RED_MIN, to);
}

static int32_t divided(int32_t sum, uint32_t n)
{
	return (int32_t)((int64_t)sum / (int64_t)n);
}

/* block_write() - The sums of a block have come: into memory, as what the worker wants
 * @payload:	As many int32 as the block has elements, in any alignment
 */
void block_write(const struct member *m, const struct offload_wr *wr, uint32_t elements, uint64_t block, int exponent,
		 const uint8_t *payload)
{
	uint32_t size = element_bytes[wr->element], n = m->group->count, count = block_count(wr, elements, block);
	uint8_t *out = memory(m, wr->out_key, wr->out + block * elements * size, (uint64_t)count * size);
	int32_t sums[BLOCK_ELEMENTS_MAX];

	if (!out)
		return;
	memcpy(sums, payload, 4u * count);
	if (element_is_integer(wr->element)) {
		for (uint32_t i = 0; i < count; i++)
			element_put_int(wr->element, out, i, wr->reduction == RED_AVG ? divided(sums[i], n) : sums[i]);
		return;
	}
	if (!block_is_scaled(wr)) {
		element_from_ordered(wr->element, out, count, sums);
		return;
	}
	for (uint32_t i = 0; exponent == EXPONENT_BAD && i < count; i++)
		element_put(wr->element, out, i, NAN);
	if (exponent != EXPONENT_BAD)
		element_from_fixed(wr->element, out, count, exponent == EXPONENT_ZERO ? 0 : shift_of(m, exponent),
				   wr->reduction == RED_AVG ? n : 1, sums);
}

/* block_conversion() - Time that the host takes to convert so many elements, at @bps */
ps_t block_conversion(struct member *m, const struct offload_wr *wr, uint32_t count, double bps)
{
	ps_t took = (ps_t)(8e12 * count * element_bytes[wr->element] / bps + 0.5);

	m->nic->worker->host += took;
	return took;
}

