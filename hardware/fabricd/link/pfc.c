/* Priority flow control (IEEE 802.1Qbb)
 *
 * Theory of Operation
 *
 * XOFF and XON are MAC control frames of 64 bytes.  They go out next after the
 * frame that is on its way, whatever waits and whatever is paused, and end at the
 * other end of the cable; no switch forwards them.  XOFF names classes and a time
 * in quanta of 512 bits: always the longest.  XOFF is sent again (refreshed) when half of it is
 * over and the cause is not.  XON is a time of 0.
 *
 * A paused class is passed over by the scheduler until XON comes or the time is
 * over.  The pause takes effect with the last bit of its frame; a frame that has
 * started is sent to its end.  Classes under credits (credits.c) are paused by these alone, and heed no XOFF.
 *
 * Who asks for a pause: a switch, for a group that is over its threshold
 * (switch/buffer.c), and a NIC whose receive buffer fills because PCIe does not keep up
 * (nic/pressure.c).
 */
#include <string.h>

#include "base/bytes.h"
#include "base/units.h"
#include "engine/event.h"
#include "engine/fabric.h"
#include "engine/report.h"
#include "link/credits.h"
#include "link/frame.h"
#include "link/params.h"
#include "link/pfc.h"
#include "link/port.h"
#include "link/scheduler.h"

#define QUANTUM_BITS 512
#define MAC_CONTROL 0x8808
#define OPCODE_PFC 0x0101
#define PAUSE_BYTES 60

static const uint8_t pause_address[6] = {0x01, 0x80, 0xc2, 0x00, 0x00, 0x01};

/* pfc_time() - How long so many quanta last on a port's cable */
ps_t pfc_time(const struct port *p, uint16_t quanta)
{
	return (ps_t)((__int128)quanta * QUANTUM_BITS * PS_PER_S / p->cable->p.rate_bps);
}

static void refresh_later(struct fabric *f, struct port *p, ps_t t)
{
	p->refresh_at = t;
	if (p->refresh_event)
		return; /* an earlier one is due, and will see that it is too early */
	p->refresh_event = true;
	event_add(f, t, EV_PAUSE_REFRESH, p->node->index, p->number, 0, 0, p, 0);
}

/* pfc_say() - Send XOFF or XON for some classes
 * @classes:	A bit a class
 */
void pfc_say(struct fabric *f, struct port *p, uint8_t classes, bool xoff)
{
	struct frame *fr = frame_small(f);
	uint8_t *d = fr->data;

	if (xoff && !p->xoff && p->cable)
		refresh_later(f, p, f->clock.now + pfc_time(p, PFC_QUANTA / 2));
	p->xoff = xoff ? p->xoff | classes : (uint8_t)(p->xoff & ~classes);
	if (!p->cable || !p->cable->p.up) {
		frame_release(f, fr);
		return;
	}
	memcpy(d, pause_address, 6);
	memset(d + 6, 0, 6);
	d[6] = 0x02; /* locally administered: this port's own */
	put_be24(d + 8, p->node->index);
	d[11] = (uint8_t)p->number;
	uint8_t *at = put_be16(put_be16(put_be16(d + 12, MAC_CONTROL), OPCODE_PFC), classes);
	CLASSES_EACH(c)
		at = put_be16(at, xoff && classes >> c & 1 ? PFC_QUANTA : 0);
	memset(at, 0, (size_t)(d + PAUSE_BYTES - at));
	fr->len = PAUSE_BYTES;
	fr->id = frame_number(p->node);
	fr->pause = true;
	CLASSES_EACH(c)
		if (classes >> c & 1 && xoff)
			p->tc[c].tx_pause++;
	fifo_add(&p->control, fr);
	port_kick(f, p);
}

/* pfc_refresh() - Half of the pause is over: send XOFF again, if it is still wanted */
void pfc_refresh(struct fabric *f, struct port *p)
{
	p->refresh_event = false;
	if (!p->xoff)
		return;
	if (f->clock.now >= p->refresh_at) {
		p->refresh_at = f->clock.now + pfc_time(p, PFC_QUANTA / 2);
		pfc_say(f, p, p->xoff, true);
	}
	refresh_later(f, p, p->refresh_at);
}

/* pfc_hold() - A class is paused from now on */
void pfc_hold(struct fabric *f, struct port *p, unsigned class, ps_t until)
{
	struct traffic_class *tc = &p->tc[class];

	p->paused |= (uint8_t)(1u << class);
	tc->paused_since = f->clock.now;
	tc->paused_until = until;
	report_pause(f, p, class, true);
	if (p->node->ops->paused)
		p->node->ops->paused(f, p, class);
}

/* pfc_resume() - And no longer */
void pfc_resume(struct fabric *f, struct port *p, unsigned class)
{
	struct traffic_class *tc = &p->tc[class];

	p->paused &= (uint8_t)~(1u << class);
	tc->paused_total += f->clock.now - tc->paused_since;
	report_pause(f, p, class, false);
}

/* pfc_waits() - A port has frames, and all of their classes are paused or have had their share: look again when one may go */
void pfc_waits(struct fabric *f, struct port *p)
{
	uint8_t waiting = p->classes_used & p->paused, held = p->classes_used & scheduler_held(f, p);
	ps_t first = PS_NEVER;

	CLASSES_EACH(c) {
		if (waiting >> c & 1 && p->tc[c].paused_until < first)
			first = p->tc[c].paused_until;
		else if (held >> c & 1 && p->tc[c].allowed < first)
			first = p->tc[c].allowed;
	}
	if (first >= p->pause_end_event)
		return;
	p->pause_end_event = first;
	event_add(f, first, EV_PAUSE_END, p->node->index, p->number, 0, 0, p, 0);
}

static void resume_ended(struct fabric *f, struct port *p)
{
	CLASSES_EACH(c)
		if (p->paused >> c & 1 && p->tc[c].paused_until <= f->clock.now)
			pfc_resume(f, p, c);
}

/* pfc_end() - The time of some pause may be over */
void pfc_end(struct fabric *f, struct port *p, ps_t t)
{
	if (t == p->pause_end_event)
		p->pause_end_event = PS_NEVER;
	resume_ended(f, p);
	port_kick(f, p);
}

static void paused(struct fabric *f, struct port *p, unsigned class, ps_t until)
{
	struct traffic_class *tc = &p->tc[class];
	bool began = !(p->paused >> class & 1);

	tc->rx_pause++;
	tc->pause_seen = f->clock.now;
	if (!p->p.pfc_rx || p->deaf >> class & 1 || credits_on(p, class))
		return;
	tc->paused_until = until;
	if (began) {
		tc->pauses++;
		pfc_hold(f, p, class, until);
	} else if (p->node->ops->pause_refreshed) {
		p->node->ops->pause_refreshed(f, p, class);
	}
}

/* pfc_receive() - A MAC control frame has come in */
void pfc_receive(struct fabric *f, struct port *p, struct frame *fr)
{
	struct view v = view_of(fr->data, fr->len);

	view_take(&v, 12);
	uint16_t type = get_be16(&v), opcode = get_be16(&v), classes = get_be16(&v);
	resume_ended(f, p);
	CLASSES_EACH(c) {
		uint16_t quanta = get_be16(&v);
		if (v.bad || type != MAC_CONTROL || opcode != OPCODE_PFC || !(classes >> c & 1))
			continue;
		if (quanta)
			paused(f, p, c, f->clock.now + pfc_time(p, quanta));
		else if (p->paused >> c & 1 && !credits_on(p, c))
			pfc_resume(f, p, c);
	}
	frame_release(f, fr);
	port_kick(f, p);
}

/* pfc_changed() - A port's parameters are new: what it no longer heeds is over, and what it may no longer say, too */
void pfc_changed(struct fabric *f, struct port *p)
{
	CLASSES_EACH(c)
		if (!p->p.pfc_rx && p->paused >> c & 1 && !credits_on(p, c))
			pfc_resume(f, p, c);
	if (p->node->ops->reconfigured)
		p->node->ops->reconfigured(f, p);
	port_kick(f, p);
}
