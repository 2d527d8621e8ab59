/* Memory in huge pages, for a file that several processes map.
 *
 * Who touches a page of new memory first waits for the kernel to clear and to map it: with pages of 4 KiB that takes
 * longer than all else that is done for a packet of that size.  So whole pieces of a memfd become huge pages, at once and
 * for all who map it, and the rest is made in bulk.  (They are pages of tmpfs, which the kernel may take apart again.)
 * The kernel is asked once for all pieces: for each call it waits until every processor has answered.
 *
 * fabricd (worker/region.c) and ranks (elements/shared.c) do the same: whoever comes first makes the pages.
 */
#ifndef HUGE_H
#define HUGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

#define HUGE_BYTES (2ull << 20)
#define SMALL_BYTES 4096ull

#ifndef MADV_POPULATE_WRITE /* Linux 5.14 */
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE /* Linux 6.1 */
#define MADV_COLLAPSE 25
#endif

/* Map a file from @place on, which is a multiple of SMALL_BYTES, at an address that is like it modulo the size of a huge
 * page.  Return: NULL if that cannot be done
 */
static inline uint8_t *huge_map(int fd, uint64_t place, size_t bytes)
{
	uint8_t *room = mmap(NULL, bytes + HUGE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (room == MAP_FAILED)
		return NULL;
	uint8_t *base = room + ((place - (uintptr_t)room) & (HUGE_BYTES - 1));
	size_t used = (bytes + SMALL_BYTES - 1) & ~(SMALL_BYTES - 1), all = bytes + HUGE_BYTES;
	if (mmap(base, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, (off_t)place) == MAP_FAILED) {
		munmap(room, all);
		return NULL;
	}
	if (base > room)
		munmap(room, (size_t)(base - room));
	if (room + all > base + used)
		munmap(base + used, (size_t)(room + all - (base + used)));
	return base;
}

/* Have others made these pieces?  Whoever makes one makes its last page last */
static inline bool huge_made(uint8_t *base, size_t bytes)
{
	unsigned char there = 1;

	for (size_t at = HUGE_BYTES; at <= bytes && there & 1; at += HUGE_BYTES)
		if (mincore(base + at - SMALL_BYTES, SMALL_BYTES, &there))
			return false;
	return there & 1;
}

/* All pages of what huge_map() has mapped are there from now on, as far as the kernel can do that in bulk */
static inline void huge_make(uint8_t *base, size_t bytes)
{
	size_t before = (size_t)(-(uintptr_t)base & (HUGE_BYTES - 1));
	size_t whole = bytes > before ? (bytes - before) & ~(HUGE_BYTES - 1) : 0;
	volatile uint8_t seen;

	for (size_t at = 0; at < whole; at += HUGE_BYTES)
		seen = base[before + at]; /* it must have a page to become a huge one */
	(void)seen;
	if (whole && !huge_made(base + before, whole) && madvise(base + before, whole, MADV_COLLAPSE)) {
		madvise(base, bytes, MADV_POPULATE_WRITE);
		return;
	}
	size_t end = whole ? before + whole : 0, first = whole ? before : 0;
	if (first)
		madvise(base, first, MADV_POPULATE_WRITE);
	if (end < bytes)
		madvise(base + end, bytes - end, MADV_POPULATE_WRITE);
}

#endif
