/* Selective repeat, receiving side: packets that came ahead of the expected one
 *
 * Theory of Operation
 *
 * A packet ahead of the expected one is kept, up to reorder_packets ahead, until all
 * before it are there.  Its payload goes over PCIe when it arrives, not when it is taken:
 * it does not wait in the NIC (receive.c; Mittal et al., "Revisiting Network Support for
 * RDMA", SIGCOMM 2018, section 5.3).  What is placed in any order needs no frame from then on
 * (place.c).  What is said of it is in answer.c, and what the sender makes of that in repeat.c.
 */
#include <stdlib.h>
#include <string.h>

#include "recovery/reorder.h"

#define WORD_BITS 64

static bool here(const struct early *e)
{
	return e->frame || e->placed;
}

static struct early *slot_of(struct reorder *r, uint64_t n)
{
	return &r->slot[n <= UINT32_MAX ? (uint32_t)n % r->room : n % r->room];
}

/* The word with the bit of packet @n, which is bit n % WORD_BITS there */
static uint64_t *word_of(const struct reorder *r, uint64_t n)
{
	return &r->here[(n & (r->bits - 1)) / WORD_BITS];
}

static struct reorder *reorder_new(uint32_t room)
{
	struct reorder *r = calloc(1, sizeof *r + room * sizeof(struct early));
	uint64_t bits = WORD_BITS;

	while (bits < room)
		bits *= 2;
	if (!r || !(r->here = calloc(bits / WORD_BITS, sizeof *r->here)))
		abort();
	r->bits = bits;
	r->room = room;
	r->unsaid_from = UINT64_MAX;
	return r;
}

/* reorder_keep() - Keep what came @ahead of the expected packet, unless there is no room or it is there already */
enum kept reorder_keep(struct reorder **at, uint32_t room, uint64_t expected, uint32_t ahead, const struct early *e)
{
	struct reorder *r = *at ? *at : (*at = reorder_new(room));

	if (ahead >= r->room)
		return KEPT_NOT;
	uint64_t n = expected + ahead;
	uint64_t *word = word_of(r, n), bit = 1ull << n % WORD_BITS;
	if (*word & bit)
		return KEPT_BEFORE;
	*slot_of(r, n) = *e;
	*word |= bit;
	r->held++;
	r->open += e->ends;
	if (n >= r->end)
		r->end = n + 1;
	if (n < r->unsaid_from)
		r->unsaid_from = n;
	return KEPT;
}

/* reorder_take() - The expected packet
 * @n:		Its number
 * @e:		Set to what is known of it
 *
 * Return: whether it has come already
 */
bool reorder_take(struct reorder *r, uint64_t n, struct early *e)
{
	if (!r || !r->held)
		return false;
	uint64_t *word = word_of(r, n), bit = 1ull << n % WORD_BITS;
	if (!(*word & bit))
		return false;
	struct early *slot = slot_of(r, n);
	*e = *slot;
	*slot = (struct early){0};
	*word &= ~bit;
	r->held--;
	r->open -= e->ends && e->frame;
	return true;
}

/* reorder_has() - Has packet @n come ahead? */
bool reorder_has(const struct reorder *r, uint64_t expected, uint64_t n)
{
	return n > expected && n < r->end && *word_of(r, n) >> n % WORD_BITS & 1;
}

/* reorder_at() - Packet @n, if it has come ahead; or NULL */
struct early *reorder_at(struct reorder *r, uint64_t expected, uint64_t n)
{
	return reorder_has(r, expected, n) ? slot_of(r, n) : NULL;
}

/* reorder_bits() - Which of packet @n and the 31 behind it have come ahead: bit 0 is @n's.  All are behind the expected one */
uint32_t reorder_bits(const struct reorder *r, uint64_t n)
{
	unsigned shift = n % WORD_BITS;
	uint64_t word = *word_of(r, n) >> shift;

	if (shift > WORD_BITS / 2)
		word |= *word_of(r, n + WORD_BITS / 2) << (WORD_BITS - shift);
	if (n >= r->end)
		return 0;
	return (uint32_t)(r->end - n < 32 ? word & ((1ull << (r->end - n)) - 1) : word);
}

/* reorder_next() - The first from packet @n on that has come ahead, or the end; @n is behind the expected one */
uint64_t reorder_next(const struct reorder *r, uint64_t n)
{
	while (n < r->end) {
		uint64_t word = *word_of(r, n) >> n % WORD_BITS;
		if (word) {
			n += (unsigned)__builtin_ctzll(word);
			break;
		}
		n += WORD_BITS - n % WORD_BITS;
	}
	return n < r->end ? n : r->end;
}

/* reorder_drop() - Forget everything that came ahead: the sender starts anew from the expected packet; frames are given back */
void reorder_drop(struct fabric *f, struct reorder *r, void (*release)(struct fabric *f, struct frame *fr))
{
	for (uint32_t i = 0; r && i < r->room; i++)
		if (here(&r->slot[i])) {
			if (r->slot[i].frame)
				release(f, r->slot[i].frame);
			r->slot[i] = (struct early){0};
			r->held--;
		}
	if (r) {
		memset(r->here, 0, r->bits / 8);
		r->unsaid_from = UINT64_MAX;
		r->open = 0;
	}
}

void reorder_release(struct reorder *r)
{
	if (r)
		free(r->here);
	free(r);
}
