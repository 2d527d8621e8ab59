/* Regions: memory of a worker's that its NIC reads and writes
 *
 * Theory of Operation
 *
 * When a worker registers memory, its pages are there from then on (base/huge.h): it is like
 * memory registration of an RNIC, which pins it.  A rank's worker has made them itself by then,
 * beside others.  (A memfd of hugetlbfs is refused: who touches it when the machine's reserve
 * has run out is killed.)
 *
 * Where the kernel cannot, pages are made when they are touched.  With the real clock they
 * are, too: a large region would hold up what is due.
 *
 * Memory on demand is not prepared at all.  Its program says which pages it has, and again when that changes: what it
 * has not cannot be got at.  A region may be a part of another, which has its memory: when that one goes, it is nothing.
 */
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/close_later.h"
#include "base/copies.h"
#include "base/huge.h"
#include "base/random.h"
#include "engine/clock.h"
#include "engine/fabric.h"
#include "worker/region.h"
#include "worker/worker.h"

#define PAGE 4096ull
#define KEY_BITS 8 /* of a window's key that change with each binding */

/* region_map() - Map a memfd, and have the region's bytes there
 * @fd:		Sealed against shrinking, and long enough
 * @place:	Of its first byte in it
 *
 * Return: whether that could be done
 */
bool region_map(const struct fabric *f, struct region *r, int fd, uint64_t place)
{
	uint64_t within = place & 4095, bytes = within + r->bytes;

	if (bytes > SIZE_MAX - 2 * HUGE_BYTES || place > INT64_MAX - bytes)
		return false;
	uint8_t *base = huge_map(fd, place - within, bytes);
	if (!base)
		return false;
	if (f->clock.mode == CLOCK_VIRTUAL && !r->there)
		huge_make(base, bytes);
	r->mapped = base;
	r->base = base + within;
	return true;
}

/* region_on_demand() - Its program has none of its pages yet.  Return: false if there is no room to say which */
bool region_on_demand(struct region *r)
{
	r->missing = ((r->address & (PAGE - 1)) + r->bytes + PAGE - 1) / PAGE;
	r->there = calloc(r->missing / 64 + 1, sizeof *r->there);
	return r->there;
}

static uint64_t page_of(const struct region *r, uint64_t address)
{
	return (address - (r->address & ~(PAGE - 1))) / PAGE;
}

/* region_pages() - Its program has those pages of it, or has them no more */
void region_pages(struct worker *w, uint32_t key, uint64_t address, uint64_t length, bool there)
{
	struct region *r = region_of(w, key);

	if (!r || !r->there || !length || address - r->address >= r->bytes || length > r->bytes - (address - r->address))
		return;
	for (uint64_t n = page_of(r, address); n <= page_of(r, address + length - 1); n++) {
		uint64_t *word = &r->there[n / 64], bit = 1ull << n % 64;
		if (!(*word & bit) == there)
			r->missing += there ? UINT64_MAX : 1;
		*word = there ? *word | bit : *word & ~bit;
	}
}

static bool has_pages(const struct region *r, uint64_t address, uint64_t length)
{
	if (!r || !r->missing || !length)
		return true;
	for (uint64_t n = page_of(r, address); n <= page_of(r, address + length - 1); n++) {
		if (!(r->there[n / 64] >> n % 64 & 1))
			return false;
		if (r->there[n / 64] == UINT64_MAX)
			n |= 63;
	}
	return true;
}

/* Its memory and what goes with that.  Of a part the memory is another's */
static void unmap(struct worker *w, struct region *r)
{
	if (r->mapped && r->on_device)
		w->nic->device_memory_used -= r->bytes;
	if (r->mapped)
		unmap_later(r->mapped, (size_t)(r->base - r->mapped) + r->bytes);
	free(r->there);
	free(r);
}

static struct region **bucket(const struct regions *all, uint32_t key)
{
	return &all->bucket[key >> all->shift & (all->room - 1)];
}

static void grow(struct regions *all)
{
	struct regions old = *all;

	all->room = old.room ? 2 * old.room : 16;
	all->bucket = calloc(all->room, sizeof *all->bucket);
	if (!all->bucket)
		abort();
	for (uint32_t i = 0; i < old.room; i++)
		for (struct region *r = old.bucket[i], *next; r; r = next) {
			next = r->next;
			struct region **to = bucket(all, r->key);
			r->next = *to;
			*to = r;
		}
	free(old.bucket);
}

/* The region or window whose key differs from that in no more than its lowest 8 bits, or NULL */
static struct region *region_alike(const struct worker *w, uint32_t key)
{
	struct region *r = w->regions.room ? *bucket(&w->regions, key) : NULL;

	while (r && r->key >> KEY_BITS != key >> KEY_BITS)
		r = r->next;
	return r;
}

/* region_named() - What a key is of: a window's lowest 8 bits may have changed since */
struct region *region_named(const struct worker *w, uint32_t key)
{
	struct region *r = region_of(w, key), *alike = r ? r : region_alike(w, key);

	return r || (alike && alike->window) ? alike : NULL;
}

/* A rank's worker counts its keys.  A program's cannot be guessed by others, and are the same in each run */
static uint32_t new_key(struct worker *w)
{
	uint32_t key = 0, made;

	while (!key || region_of(w, key) || (w->regions.windows && region_alike(w, key))) {
		made = ++w->regions.made;
		key = w->program ? (uint32_t)random_of(w->f->seed, RANDOM_KEY, (uint64_t)w->rank << 32 | w->program, made) : made;
	}
	return key;
}

static bool is_open(const struct region *r)
{
	return r->rights & (REMOTE_WRITE | REMOTE_ATOMIC);
}

/* Is it device memory itself, not a region of it? */
static bool device_memory(const struct region *r)
{
	return r->on_device && r->mapped;
}

/* region_add() - It belongs to a session from now on, under a new key */
struct region *region_add(struct worker *w, const struct region *r)
{
	struct regions *all = &w->regions;
	struct region *in = malloc(sizeof *in);

	if (!in)
		abort();
	all->shift = w->program ? KEY_BITS : 0;
	if (all->count == all->room)
		grow(all);
	*in = *r;
	in->key = new_key(w);
	in->next = *bucket(all, in->key);
	*bucket(all, in->key) = in;
	all->count++;
	all->windows += in->window != 0;
	all->open += is_open(in);
	all->bytes += in->mapped ? in->bytes : 0;
	all->on_device += device_memory(in);
	all->device_bytes += device_memory(in) ? in->bytes : 0;
	return in;
}

/* region_part() - A region of memory that another has, by an address that counts from its own first byte */
struct region *region_part(struct worker *w, struct region *whole, uint64_t offset, uint64_t bytes)
{
	whole->parts++;
	return region_add(w, &(struct region){.base = whole->base + offset, .bytes = bytes, .part_of = whole->key, .on_device = whole->on_device});
}

/* region_grant() - It may be used otherwise from now on, and by another domain */
void region_grant(struct worker *w, uint32_t key, uint32_t rights, uint32_t pd)
{
	struct region *r = region_of(w, key);

	if (!r)
		return;
	w->regions.open -= is_open(r);
	r->rights = rights;
	r->pd = pd;
	w->regions.open += is_open(r);
}

/* region_window() - A memory window, of no memory yet.  Its key differs from all others in more than the bits that bindings change */
struct region *region_window(struct worker *w, uint8_t type, uint32_t pd)
{
	w->regions.windows++; /* for its key */
	struct region *r = region_add(w, &(struct region){.window = type, .pd = pd});
	w->regions.windows--;
	return r;
}

static void unbind(struct worker *w, struct region *r)
{
	struct region *whole = region_of(w, r->part_of);

	if (whole)
		whole->parts--;
	w->regions.open -= is_open(r);
	r->bytes = r->rights = r->part_of = r->qp = 0;
	r->base = NULL;
}

/* region_bind() - A window is of that memory from now on (InfiniBand specification, 10.6.7.2)
 * @wanted:	Its new key, address, bytes and rights
 * @key:	Of the region that it is to be a part of
 * @q:		The queue pair that asks
 *
 * Return: false if it cannot be
 */
bool region_bind(struct worker *w, const struct region *wanted, uint32_t key, const struct qp *q)
{
	struct region *r = region_alike(w, wanted->key), *whole = region_of(w, key);

	if (!r || !r->window || r->pd != q->own->pd || (r->window == 2 && r->part_of))
		return false;
	bool none = r->window == 1 && !wanted->bytes, changes = wanted->rights & (REMOTE_WRITE | REMOTE_ATOMIC);
	uint64_t at = whole ? wanted->address - whole->address : 0;
	if (!none && (!whole || !whole->mapped || whole->pd != r->pd || !(whole->rights & BIND_WINDOWS) || at > whole->bytes ||
		      wanted->bytes > whole->bytes - at || (changes && !(whole->rights & LOCAL_WRITE))))
		return false;
	unbind(w, r);
	r->key = wanted->key;
	if (none)
		return true;
	r->address = wanted->address;
	r->bytes = wanted->bytes;
	r->rights = wanted->rights & (REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC);
	r->base = whole->base + at;
	r->part_of = whole->key;
	r->qp = r->window == 2 ? q->number : 0;
	w->regions.open += is_open(r);
	whole->parts++;
	return true;
}

/* region_invalidate() - A window of type 2 is of no memory any more: its queue pair says so, or the peer of that.  Return: false if it is none */
bool region_invalidate(struct worker *w, uint32_t key, const struct qp *q)
{
	struct region *r = region_of(w, key);

	if (!r || r->window != 2 || !r->part_of || r->qp != q->number)
		return false;
	unbind(w, r);
	return true;
}

/* What others are parts of goes: they are of no memory any more */
static void parts_go(struct worker *w, const struct region *whole)
{
	struct regions *all = &w->regions;

	for (uint32_t i = 0; i < all->room; i++)
		for (struct region *r = all->bucket[i]; r; r = r->next) {
			if (r->part_of != whole->key)
				continue;
			all->open -= is_open(r);
			r->bytes = r->rights = r->part_of = 0;
			r->base = NULL;
		}
}

/* region_remove() - It belongs to nobody any more; no payload of it is lent */
void region_remove(struct worker *w, uint32_t key)
{
	struct regions *all = &w->regions;
	struct region **at = all->room ? bucket(all, key) : NULL;

	while (at && *at && (*at)->key != key)
		at = &(*at)->next;
	if (!at || !*at)
		return;
	struct region *r = *at, *whole = region_of(w, r->part_of);
	copies_settle();
	*at = r->next;
	all->count--;
	all->windows -= r->window != 0;
	all->open -= is_open(r);
	all->bytes -= r->mapped ? r->bytes : 0;
	all->on_device -= device_memory(r);
	all->device_bytes -= device_memory(r) ? r->bytes : 0;
	if (whole)
		whole->parts--;
	if (r->parts)
		parts_go(w, r);
	unmap(w, r);
}

/* regions_unmap() - A worker's memory is no longer ours */
void regions_unmap(struct worker *w)
{
	struct regions *all = &w->regions;

	copies_settle();
	for (uint32_t i = 0; i < all->room; i++)
		for (struct region *r = all->bucket[i], *next; r; r = next) {
			next = r->next;
			unmap(w, r);
		}
	free(all->bucket);
	*all = (struct regions){0};
}

/* region_of() - The region of that key, or NULL */
struct region *region_of(const struct worker *w, uint32_t key)
{
	struct region *r = w->regions.room ? *bucket(&w->regions, key) : NULL;

	while (r && r->key != key)
		r = r->next;
	return r;
}

/* worker_region() - The region behind a key, if [address, address + length) lies inside it; else NULL */
struct region *worker_region(const struct worker *w, uint32_t key, uint64_t address, uint64_t length)
{
	struct region *r = region_of(w, key);

	if (!r || address - r->address > r->bytes || length > r->bytes - (address - r->address))
		return NULL;
	return has_pages(r->window ? region_of(w, r->part_of) : r, address, length) ? r : NULL;
}

/* worker_memory() - Memory of a worker's that is looked at or changed now, or NULL if that is no part of a region of its */
uint8_t *worker_memory(struct worker *w, uint32_t key, uint64_t address, uint64_t length)
{
	const struct region *r = worker_region(w, key, address, length);

	copies_settle();
	return r ? region_at(r, address) : NULL;
}
