/* Round trips of a queue pair's packets: from the start on the cable to what the receiver says of that packet
 *
 * Each packet that is answered is measured, unless it was sent again: then nobody knows
 * which one the answer is for (Karn's rule).  How long they take, and by how much that varies, is
 * smoothed as in RFC 6298, section 2.
 */
#include <stdlib.h>

#include "base/units.h"
#include "recovery/round_trip.h"

#define LEAST_ROOM 64

/* When packet @n left; 0: that is not known */
static ps_t *left_of(const struct round_trip *r, uint64_t n)
{
	return &r->left[n & (r->room - 1)];
}

/* round_trip_left_at() - When packet @n left for the first time, PS_NEVER if that is not known; it is not long acknowledged */
ps_t round_trip_left_at(const struct round_trip *r, uint64_t n)
{
	ps_t left = r->room ? *left_of(r, n) : 0;

	return left ? left : PS_NEVER;
}

/* Room for packets from @first to @n */
static void grow(struct round_trip *r, uint64_t first, uint64_t n)
{
	struct round_trip more = {.room = r->room ? r->room : LEAST_ROOM};

	while (more.room <= n - first)
		more.room *= 2;
	more.left = calloc(more.room, sizeof *more.left);
	if (!more.left)
		abort();
	for (uint64_t i = n - first > r->room ? n - r->room : first; i < n; i++)
		*left_of(&more, i) = *left_of(r, i);
	free(r->left);
	r->left = more.left;
	r->room = more.room;
}

/* round_trip_left() - Packet @n leaves for the first time; those before @acked have been answered */
void round_trip_left(struct round_trip *r, uint64_t n, uint64_t acked, ps_t now)
{
	if (n - acked >= r->room)
		grow(r, acked, n);
	*left_of(r, n) = now;
}

/* round_trip_took() - A round trip took so long */
void round_trip_took(struct round_trip *r, ps_t took)
{
	ps_t off = took > r->smoothed ? took - r->smoothed : r->smoothed - took;

	r->varies = r->smoothed ? r->varies + (off - r->varies) / 4 : took / 2;
	r->smoothed = r->smoothed ? r->smoothed + (took - r->smoothed) / 8 : took;
}

/* round_trip_over() - Packet @n, which was not sent again, is answered */
void round_trip_over(struct round_trip *r, uint64_t n, ps_t now)
{
	ps_t left = round_trip_left_at(r, n), took = now - left;

	if (left == PS_NEVER)
		return; /* before anybody looked */
	if (!r->shortest || took < r->shortest)
		r->shortest = took;
	round_trip_took(r, took);
}
