/* The receive buffer of a NIC, and the pauses that it causes
 *
 * Theory of Operation
 *
 * What has come in and has not yet gone over PCIe occupies the receive buffer.
 * PCIe is a serial link, so how much that is follows from when it will be free;
 * there is no event for each frame.  From rx_xoff on, the NIC pauses its lossless
 * classes, until the buffer is down to rx_xon.  A frame that finds no room is
 * dropped.
 *
 * A pause storm is a NIC that pauses classes for no reason, without end.
 */
#include "base/units.h"
#include "engine/event.h"
#include "engine/fabric.h"
#include "link/pfc.h"
#include "link/port.h"
#include "nic/nic.h"

/* Are there @bytes or more? */
static bool backlog_reaches(const struct fabric *f, const struct nic *n, uint64_t bytes)
{
	ps_t left = n->pcie_rx_free - f->clock.now;

	return left > 0 ? (unsigned __int128)left * (uint64_t)n->p.pcie_bps >= (unsigned __int128)bytes * 8 * PS_PER_S : !bytes;
}

/* What should be paused is, and nothing else */
static void say(struct fabric *f, struct nic *n)
{
	struct port *p = &n->port[0];
	uint8_t want = (uint8_t)((p->p.pfc_tx && n->pressed ? n->p.lossless & ~p->cable->p.credit_classes : 0) | n->p.storm);
	uint8_t on = want & ~p->xoff, off = p->xoff & ~want;

	if (on)
		pfc_say(f, p, on, true);
	if (off)
		pfc_say(f, p, off, false);
}

static void drained_later(struct fabric *f, struct nic *n)
{
	ps_t t = n->pcie_rx_free - (ps_t)((__int128)n->p.rx_xon_bytes * 8 * PS_PER_S / n->p.pcie_bps);

	if (n->pressure_event != PS_NEVER)
		return;
	n->pressure_event = t > f->clock.now ? t : f->clock.now;
	event_add(f, n->pressure_event, EV_RX_DRAINED, n->n.index, 0, 0, 0, n, 0);
}

static void press(struct fabric *f, struct nic *n)
{
	n->pressed = true;
	say(f, n);
	drained_later(f, n);
}

/* nic_rx_room() - Does the receive buffer have room for so much more?  If not, it is pressed, wherever its threshold is */
bool nic_rx_room(struct fabric *f, struct nic *n, uint32_t bytes)
{
	uint64_t room = n->p.rx_buffer_bytes;

	if (!room || (bytes <= room && !backlog_reaches(f, n, room - bytes + 1)))
		return true;
	if (!n->pressed)
		press(f, n);
	return false;
}

/* nic_pressure() - Something has come in */
void nic_pressure(struct fabric *f, struct nic *n)
{
	if (!n->pressed && n->p.rx_buffer_bytes && backlog_reaches(f, n, n->p.rx_xoff_bytes))
		press(f, n);
}

/* nic_drained() - By what was known when it was asked for, the backlog is down to rx_xon */
void nic_drained(struct fabric *f, struct nic *n)
{
	n->pressure_event = PS_NEVER;
	if (backlog_reaches(f, n, n->p.rx_xon_bytes + 1)) {
		drained_later(f, n);
		return;
	}
	n->pressed = false;
	say(f, n);
}

/* nic_params_changed() - Parameters are new */
void nic_params_changed(struct fabric *f, struct nic *n)
{
	if (n->pressed && !backlog_reaches(f, n, n->p.rx_xon_bytes + 1))
		n->pressed = false;
	say(f, n);
}
