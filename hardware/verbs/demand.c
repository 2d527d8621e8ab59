/* Memory on demand: regions of which not all need be there, and that follow what their program maps and unmaps
 *
 * Theory of Operation
 *
 * A NIC with on-demand paging goes by the process's own page tables.  Ours shares pages with the process, and is told
 * which of a region's are there: when it is registered, when advice asks, and whenever the process waits, as it may have
 * mapped others since.  What has been mapped anew is shared then (share.c); what is not there, or is shared with others
 * already, the NIC cannot get at.  A fault takes no emulated time.
 *
 * A region of all memory (implicit) has none itself: for what a request names of it, a region of the 64 KiB around is made,
 * and the request names that.  Peers name none of these, so it is for requests of its own only.
 */
#include "railbed.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "share.h"
#include "wire.h"

#define PAGE 4096ull
#define AROUND 65536ull /* of what is named of all memory */
#define SPANS 4096

struct demand {
	struct demand *next;
	struct span range, bytes; /* whole pages; what is registered */
	uint64_t shift;		  /* from an address of the process to that of requests */
	uint32_t key, of;	  /* of: key of the implicit region that it is for, or 0 */
	const struct ibv_pd *pd;
	unsigned access;
	bool implicit;
	struct span *told; /* what fabricd knows to be there */
	int count;
};

static struct demand *all;
static struct span found[SPANS];
static bool any_implicit;

static struct demand *demand_of(uint32_t key)
{
	struct demand *d = all;

	while (d && d->key != key)
		d = d->next;
	return d;
}

static void say(const struct demand *d, uint64_t start, uint64_t end, bool there)
{
	start = start > d->bytes.start ? start : d->bytes.start;
	end = end < d->bytes.end ? end : d->bytes.end;
	if (start >= end)
		return;
	const struct wire_pages p = {.key = d->key, .flags = there ? PAGES_THERE : 0, .address = start + d->shift, .length = end - start};
	memcpy(session_command(PAGES, sizeof p), &p, sizeof p);
}

/* What is there of a region is shared, and fabricd knows.  0, or what is wrong */
static int look(struct demand *d)
{
	int n = d->implicit ? 0 : share_present(&d->range, found, SPANS);

	if (n < 0)
		return -n;
	if (n == d->count && (!n || !memcmp(found, d->told, (size_t)n * sizeof *found)))
		return 0;
	struct span *told = realloc(d->told, ((size_t)n + 1) * sizeof *told);
	if (!told)
		return ENOMEM;
	memcpy(told, found, (size_t)n * sizeof *found);
	d->told = told;
	d->count = n;
	uint64_t at = d->range.start;
	for (int i = 0; i < n; i++) {
		say(d, at, found[i].start, false);
		say(d, found[i].start, found[i].end, true);
		at = found[i].end;
	}
	say(d, at, d->range.end, false);
	return 0;
}

/* demand_look() - The process is about to wait: what it has mapped since is there, what it has unmapped is not */
void demand_look(void)
{
	for (struct demand *d = all; d; d = d->next)
		look(d);
}

/* demand_added() - A region on demand has a key: from now on it is looked after.  0, or what is wrong; it is to be told of then */
int demand_added(const struct ibv_pd *pd, uint64_t at, size_t length, uint64_t iova, uint32_t key, unsigned access)
{
	struct demand *d = calloc(1, sizeof *d);

	if (!d)
		return ENOMEM;
	*d = (struct demand){.next = all, .range = {at & ~(PAGE - 1), (at + length + PAGE - 1) & ~(PAGE - 1)}, .bytes = {at, at + length},
			     .shift = iova - at, .key = key, .pd = pd, .access = access, .implicit = demand_is_all(at, length)};
	any_implicit |= d->implicit;
	all = d;
	return look(d);
}

static void take_out(struct demand **at)
{
	struct demand *d = *at;

	*at = d->next;
	free(d->told);
	free(d);
}

/* demand_removed() - The region of that key goes, with those that were made for what requests named of it */
void demand_removed(uint32_t key)
{
	for (struct demand **at = &all; *at;) {
		struct demand *d = *at;
		if (d->of == key) {
			memory_forget(d->key, session.forks);
			take_out(at);
		} else if (d->key == key) {
			take_out(at);
		} else {
			at = &d->next;
		}
	}
}

/* demand_child() - A child has none of its parent's regions */
void demand_child(void)
{
	all = NULL;
	any_implicit = false;
}

/* The key by which fabricd knows what a request names by @key; if there is none yet, a region is made.  0: it cannot be */
static uint32_t part_of(const struct demand *whole, uint64_t at, uint64_t length)
{
	uint64_t start = at & ~(AROUND - 1), end = (at + length + AROUND - 1) & ~(AROUND - 1);

	for (const struct demand *d = all; d; d = d->next)
		if (d->of == whole->key && d->bytes.start <= at && at + length <= d->bytes.end)
			return d->key;
	uint32_t key = end > start ? memory_enroll(whole->pd, start, end - start, start, whole->access) : 0;
	if (key)
		demand_of(key)->of = whole->key;
	return key;
}

/* demand_named() - Pieces of memory that a request names, as fabricd knows them: @list, or @to with other keys */
const struct ibv_sge *demand_named(const struct ibv_sge *list, int count, struct ibv_sge to[SGE_MAX])
{
	if (!any_implicit || count > SGE_MAX)
		return list;
	for (int i = 0; i < count; i++) {
		const struct demand *d = demand_of(list[i].lkey);
		to[i] = list[i];
		if (d && d->implicit && list[i].length)
			to[i].lkey = part_of(d, list[i].addr, list[i].length);
	}
	return to;
}

/* Is all of it there? */
static bool is_there(const struct demand *d, uint64_t start, uint64_t end)
{
	for (int i = 0; i < d->count; i++)
		if (d->told[i].start <= start && end <= d->told[i].end)
			return true;
	return false;
}

static int advise_one(const struct ibv_pd *pd, enum ib_uverbs_advise_mr_advice advice, uint32_t flags, const struct ibv_sge *s)
{
	struct demand *d = demand_of(s->lkey);

	if (!d)
		return ENOENT;
	if (d->pd != pd || (advice == IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE && !(d->access & IBV_ACCESS_LOCAL_WRITE)))
		return EPERM;
	if (!s->length)
		return 0;
	uint64_t at = s->addr - d->shift, end = at + s->length;
	if (d->implicit)
		d = demand_of(part_of(d, at, s->length));
	if (!d || at < d->bytes.start || end > d->bytes.end || end < at)
		return EFAULT;
	int wrong = look(d);
	bool must = advice != IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT && flags & IBV_ADVISE_MR_FLAG_FLUSH;
	return wrong ? wrong : must && !is_there(d, at, end) ? EFAULT : 0;
}

/* demand_advise() - ibv_advise_mr */
int demand_advise(struct ibv_pd *pd, enum ib_uverbs_advise_mr_advice advice, uint32_t flags, struct ibv_sge *list, uint32_t count)
{
	int wrong = 0;

	if (flags & ~(uint32_t)IBV_ADVISE_MR_FLAG_FLUSH || !count)
		return EINVAL;
	if (advice > IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT)
		return ENOTSUP;
	session_lock();
	session_begin();
	for (uint32_t i = 0; i < count && !wrong; i++)
		wrong = advise_one(pd, advice, flags, &list[i]);
	session_now();
	session_unlock();
	return wrong;
}
