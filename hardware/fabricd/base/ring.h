/* Rings of elements of one size: grow by doubling up to a limit, indexes run on. */
#ifndef BASE_RING_H
#define BASE_RING_H

#include <stddef.h>
#include <stdint.h>

struct ring {
	void *at;
	uint32_t head, tail, room; /* room: a power of two */
};

void *ring_push(struct ring *r, size_t size, uint32_t limit);
void *ring_at(const struct ring *r, size_t size, uint32_t index);

#endif
