/* Memory that workers register (region.c). */
#ifndef WORKER_REGION_H
#define WORKER_REGION_H

#include <stdbool.h>
#include <stdint.h>

#include "transport/qp.h"

struct fabric;
struct worker;

struct region {
	struct region *next; /* with the same hash */
	uint8_t *base;	     /* of its first byte */
	uint8_t *mapped;     /* the page that it is in; NULL: its memory is another's */
	uint64_t bytes, address;
	uint32_t key, rights, pd;
	uint32_t part_of; /* key of the region whose memory it is a part of, or 0 */
	uint32_t parts;	  /* so many are of this one */
	uint8_t window;	  /* memory window of that type (ibv_mw_type), or 0; bound if it is a part of a region */
	uint32_t qp;	  /* of type 2: which alone may use it */
	bool on_device;	  /* memory of the NIC: nothing of it crosses PCIe */
	uint64_t *there;  /* on demand: a bit for each of its pages that the program has; NULL: it has all */
	uint64_t missing; /* so many of them it has not */
};

struct regions {
	struct region **bucket; /* by the low bits of the key (of programs: behind the lowest 8, which those of windows change); a power of two of them, or NULL */
	uint32_t windows; /* so many of them are, */
	uint32_t on_device; /* and so many device memory, */
	uint64_t device_bytes; /* of so many bytes of `bytes` */
	uint32_t count, room, made, open; /* open: peers may write to so many */
	uint32_t shift;
	uint64_t bytes;
};

bool region_on_demand(struct region *r);
void region_pages(struct worker *w, uint32_t key, uint64_t address, uint64_t length, bool there);
bool region_map(const struct fabric *f, struct region *r, int fd, uint64_t place);
struct region *region_add(struct worker *w, const struct region *r);
struct region *region_window(struct worker *w, uint8_t type, uint32_t pd);
struct region *region_named(const struct worker *w, uint32_t key);
bool region_bind(struct worker *w, const struct region *wanted, uint32_t whole, const struct qp *q);
bool region_invalidate(struct worker *w, uint32_t key, const struct qp *q);
struct region *region_part(struct worker *w, struct region *whole, uint64_t offset, uint64_t bytes);
void region_grant(struct worker *w, uint32_t key, uint32_t rights, uint32_t pd);
void region_remove(struct worker *w, uint32_t key);
struct region *region_of(const struct worker *w, uint32_t key);
struct region *worker_region(const struct worker *w, uint32_t key, uint64_t address, uint64_t length);
void regions_unmap(struct worker *w);

/* region_at() - Where a byte of it is */
static inline uint8_t *region_at(const struct region *r, uint64_t address)
{
	return r->base + (address - r->address);
}

#endif
