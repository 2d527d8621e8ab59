/* Results of a NIC-side ring on their way to memory
 *
 * Theory of Operation
 *
 * Sums and gathered chunks are written over PCIe one packet behind the other.  Meanwhile
 * they are in the NIC's memory, not in its receive buffer: at most two of their packets
 * are in PCIe's queue.  When too many wait, the adder makes no more sums that are
 * results.  When their room is used up, packets that come in are answered with RNR and
 * come again.
 */
#include "base/units.h"
#include "engine/fabric.h"
#include "nic/nic.h"
#include "offload/ring/ring.h"

static uint32_t waiting(const struct ring_member *r)
{
	return r->result_tail - r->result_head;
}

/* result_room() - May another one come in?  @sum: one that the adder makes, and that can wait */
bool result_room(const struct ring_member *r, bool sum)
{
	return waiting(r) < (sum ? r->result_room / 2 : r->result_room);
}

/* result_keep() - A result is there */
void result_keep(struct ring_member *r, struct ring_pass *of, uint32_t bytes)
{
	r->result[r->result_tail++ % r->result_room] = (struct ring_result){.of = of, .bytes = bytes};
}

/* result_write() - Write as long as PCIe does not queue more than a packet of ours; then go on when it is done */
void result_write(struct ring_member *r)
{
	struct nic *n = r->nic;
	ps_t last = n->pcie_rx_free, now = r->f->clock.now;

	while (r->result_head != r->result_tail && last <= now) {
		const struct ring_result *one = &r->result[r->result_head++ % r->result_room];
		last = n->pcie_rx_free;
		ps_t t = pcie_write(n, now, one->bytes);
		one->of->visible = t > one->of->visible ? t : one->of->visible;
		one->of->worked++;
	}
	if (r->result_head == r->result_tail) {
		r->write_due = PS_NEVER;
	} else if (r->write_due == PS_NEVER || r->write_due <= now) {
		r->write_due = last;
		ring_later(r, last);
	}
}
