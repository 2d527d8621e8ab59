/* What a NIC has sent for its worker by a given time
 *
 * Theory of Operation
 *
 * The time of a running worker may be earlier than the clock, at most by the cost of
 * a post and the PCIe latency (loop.c).  By how much, depends on wall time, but what
 * the worker is told must not.  So the last changes of the count are kept with their
 * times, one entry for each time.
 */
#include "base/units.h"
#include "engine/fabric.h"
#include "link/frame.h"
#include "nic/nic.h"

/* A data frame of @bytes goes out over the cable on behalf of the worker, now */
static void count_data(struct fabric *f, struct nic *n, uint32_t bytes)
{
	struct sent *s = &n->sent;
	uint64_t total = nic_sent_bytes(n, PS_NEVER) + bytes;

	if (!s->count || s->last[(s->count - 1) % SENT_KEPT].at != f->clock.now)
		s->count++;
	s->last[(s->count - 1) % SENT_KEPT] = (struct sent_change){.at = f->clock.now, .bytes = total};
}

/* nic_on_wire() - A frame that one of a NIC's sources has built begins to leave: only now has it been sent */
void nic_on_wire(struct fabric *f, struct frame *fr)
{
	struct nic *n = tx_of(fr)->nic;

	if (fr->data_of_worker)
		count_data(f, n, fr->len);
	if (fr->from)
		fr->from->ops->on_wire(f, fr);
}

/* nic_sent_bytes() - Bytes of data frames that had gone out over the cable by @t
 *
 * If more than SENT_KEPT changes have come since @t: by the oldest that is known.
 */
uint64_t nic_sent_bytes(const struct nic *n, ps_t t)
{
	const struct sent *s = &n->sent;
	uint64_t oldest = s->count > SENT_KEPT ? s->count - SENT_KEPT : 0;

	for (uint64_t i = s->count; i > oldest; i--)
		if (s->last[(i - 1) % SENT_KEPT].at <= t)
			return s->last[(i - 1) % SENT_KEPT].bytes;
	return oldest ? s->last[oldest % SENT_KEPT].bytes : 0;
}
