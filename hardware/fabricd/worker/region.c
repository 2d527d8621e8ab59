/* Regions: memory of a worker's that its NIC reads and writes
 *
 * Theory of Operation
 *
 * Who touches a page of new memory first waits for the kernel to clear and to map it: with
 * pages of 4 KiB that takes longer than all else that is done for a packet of that size.  So
 * when a worker registers memory, whole pieces of PIECE_BYTES become huge pages of the memfd,
 * at once and for all who map it, the worker, too; the rest is made there in bulk.  It is like
 * memory registration of an RNIC, which pins it.  (These are pages of tmpfs, which the kernel
 * may take apart again.  A memfd of hugetlbfs is refused: who touches it when the machine's
 * reserve has run out is killed.)
 *
 * Where the kernel cannot, pages are made when they are touched.  With the real clock they
 * are, too: a large region would hold up what is due.
 */
#include <stdint.h>
#include <sys/mman.h>

#include "base/close_later.h"
#include "base/copies.h"
#include "engine/clock.h"
#include "engine/fabric.h"
#include "worker/region.h"
#include "worker/worker.h"

#define PIECE_BYTES (2ull << 20)

#ifndef MADV_POPULATE_WRITE /* Linux 5.14 */
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE /* Linux 6.1 */
#define MADV_COLLAPSE 25
#endif

/* The pages of a region are there from now on, as far as the kernel can do that in bulk */
static void prefault(uint8_t *base, uint64_t bytes)
{
	volatile uint8_t seen;
	uint64_t at = 0;

	for (; at + PIECE_BYTES <= bytes; at += PIECE_BYTES) {
		seen = base[at]; /* it must have a page to become a huge one */
		if (madvise(base + at, PIECE_BYTES, MADV_COLLAPSE))
			break;
	}
	(void)seen;
	if (at < bytes)
		madvise(base + at, bytes - at, MADV_POPULATE_WRITE);
}

/* region_map() - Map a memfd
 * @fd:		Sealed against shrinking, and of @bytes at least
 *
 * Return: where it is, or NULL
 */
uint8_t *region_map(const struct fabric *f, int fd, uint64_t bytes)
{
	if (bytes > SIZE_MAX - PIECE_BYTES)
		return NULL;
	/* huge pages have to lie as in the file: find a place at a multiple of their size, and give back the rest */
	uint8_t *place = mmap(NULL, bytes + PIECE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (place == MAP_FAILED)
		return NULL;
	uint8_t *base = place + (-(uintptr_t)place & (PIECE_BYTES - 1));
	uint64_t used = (bytes + 4095) & ~4095ull;
	bool mapped = mmap(base, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) != MAP_FAILED;
	if (!mapped) {
		munmap(place, bytes + PIECE_BYTES);
		return NULL;
	}
	if (base > place)
		munmap(place, (size_t)(base - place));
	if (place + bytes + PIECE_BYTES > base + used)
		munmap(base + used, (size_t)(place + bytes + PIECE_BYTES - (base + used)));
	if (f->clock.mode == CLOCK_VIRTUAL)
		prefault(base, bytes);
	return base;
}

/* regions_unmap() - A worker's memory is no longer ours */
void regions_unmap(struct worker *w)
{
	copies_settle();
	while (w->region_count) {
		struct region *r = &w->region[--w->region_count];
		unmap_later(r->base, r->bytes);
	}
	w->region_bytes = 0;
}

/* worker_region() - The region behind a key, if [offset, offset + length) lies inside it; else NULL */
struct region *worker_region(struct worker *w, uint32_t key, uint64_t offset, uint64_t length)
{
	if (key == 0 || key > w->region_count)
		return NULL;
	struct region *r = &w->region[key - 1];
	return offset <= r->bytes && length <= r->bytes - offset ? r : NULL;
}

/* worker_memory() - Memory of a worker's that is looked at or changed now, or NULL if that is no part of a region of its */
uint8_t *worker_memory(struct worker *w, uint32_t key, uint64_t offset, uint64_t length)
{
	const struct region *r = worker_region(w, key, offset, length);

	copies_settle();
	return r ? r->base + offset : NULL;
}
