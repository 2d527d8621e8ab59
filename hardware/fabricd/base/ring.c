/* Rings of work requests: grow by doubling up to a limit, indexes run on. */
#include <stdlib.h>
#include <string.h>

#include "base/ring.h"

void *ring_at(const struct ring *r, size_t size, uint32_t index)
{
	return (uint8_t *)r->at + (size_t)(index & (r->room - 1)) * size;
}

/* ring_push() - Room for one more element at the tail
 * @size:	Element size
 * @limit:	At most so many elements, a power of two
 *
 * Return: where it goes, or NULL if the ring is at its limit
 */
void *ring_push(struct ring *r, size_t size, uint32_t limit)
{
	if (r->tail - r->head == r->room) {
		uint32_t room = r->room ? 2 * r->room : 16;
		if (room > limit)
			return NULL;
		struct ring grown = {.at = malloc(room * size), .head = r->head, .tail = r->tail, .room = room};
		if (!grown.at)
			return NULL;
		for (uint32_t i = r->head; i != r->tail; i++)
			memcpy(ring_at(&grown, size, i), ring_at(r, size, i), size);
		free(r->at);
		*r = grown;
	}
	return ring_at(r, size, r->tail++);
}
