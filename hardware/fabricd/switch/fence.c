/* Fences: has all come out of Open vSwitch that ever will?
 *
 * Theory of Operation
 *
 * A fence is a marked frame on a TAP of its own that a bridge of the same Open vSwitch
 * sends straight back.  The userspace datapath polls its ports in turn, up to 32 frames
 * each: the first fence is back when some round has passed its port, the second when every
 * port was polled once more.  So with at most 32 frames pending a port, whatever has not
 * come out by then never will.
 *
 * A fence that does not come back is waited for with patience, and not at all once Open
 * vSwitch has ended.  Where it is said how far the clock goes (control/until.c), a slow one
 * is waited for on, and that is reported.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/patience.h"
#include "base/wall.h"
#include "engine/fabric.h"
#include "engine/report.h"
#include "link/port.h"
#include "switch/ovs.h"
#include "switch/switch.h"

#define FENCE_TYPE 0x88b5 /* IEEE local experimental */
#define FENCE_BYTES 60
#define SLOW_TIMES 10 /* so many times its patience a slow one is waited for */

static void fence_write(struct fabric *f)
{
	struct ovs *o = f->ovs;
	uint8_t data[FENCE_BYTES] = {0x02, 0, 0, 0, 0, 0x01, 0x02, 0, 0, 0, 0, 0x02};
	uint8_t *p = put_be16(data + 12, FENCE_TYPE);

	p = put_le32(p, o->nonce);
	put_le64(p, ++o->fence_token);
	o->fences++;
	o->slow = false;
	patience_begin(&o->patience);
	if (write(o->fence_tap, data, sizeof data) < 0)
		fprintf(stderr, "fabricd: fence: %s\n", strerror(errno));
}

/* ovs_fence_start() - Send the first of two fences, unless one is under way */
void ovs_fence_start(struct fabric *f)
{
	struct ovs *o = f->ovs;

	if (o->fence_round)
		return;
	o->fence_round = 1;
	o->fence_upto = o->last_number;
	fence_write(f);
}

/* ovs_fence_readable() - A fence is back: send the second, or settle what the two have proved */
void ovs_fence_readable(struct fabric *f)
{
	struct ovs *o = f->ovs;
	uint8_t data[FENCE_BYTES + 4];
	ssize_t n;

	while ((n = read(o->fence_tap, data, sizeof data)) > 0) {
		struct view v = view_of(data + 12, n > 12 ? (size_t)n - 12 : 0);
		uint16_t type = get_be16(&v);
		uint32_t nonce = get_le32(&v);
		uint64_t token = get_le64(&v);
		if (v.bad || type != FENCE_TYPE || nonce != o->nonce || token != o->fence_token || !o->fence_round)
			continue;
		if (o->fence_round == 1) {
			o->fence_round = 2;
			fence_write(f);
			continue;
		}
		/* all that came out before the fence lies in the TAPs: take it in first */
		for (uint32_t s = 0; s < f->switch_count; s++)
			PORTS_EACH(&f->switches[s].n, p)
				ovs_readable(f, p);
		o->fence_round = 0;
		for (struct pending *p = o->head, *next; p; p = next) {
			next = p->next;
			if (p->number <= o->fence_upto)
				ovs_settle(f, p);
		}
	}
}

/* Where it is said how far the clock goes, nobody looks at wall time: one that is slow is waited for, if it is there
 * Return: false to give it up
 */
static bool is_waited_for(struct fabric *f, const char *text)
{
	struct ovs *o = f->ovs;

	if (!f->clock.bounded || wall_ns() - o->patience.heard_ns >= SLOW_TIMES * f->patience_ns)
		return false;
	if (!o->slow)
		report_event(f, REPORT_OVS_SLOW, json_pack("{s:s}", "reason", text));
	o->slow = true;
	return true;
}

static void lost(struct fabric *f, const char *text)
{
	fprintf(stderr, "fabricd: %s\n", text);
	report_event(f, REPORT_OVS_LOST, json_pack("{s:s}", "reason", text));
	f->failed = f->stop = true;
}

/* ovs_tick() - Look whether frames have been out for long enough to ask with a fence */
void ovs_tick(struct fabric *f)
{
	struct ovs *o = f->ovs;
	int64_t looked = o->patience.looked_ns;
	char why[128];

	if (!o->inside)
		return;
	if (!o->fence_round) {
		ovs_fence_start(f);
	} else if (patience_look(&o->patience, f->patience_ns, false, why, sizeof why)) {
		char text[192];
		snprintf(text, sizeof text, "Open vSwitch returns no fence%s%s", o->patience.pid ? ": " : "", o->patience.pid ? why : "");
		if (!is_waited_for(f, text))
			lost(f, text);
	} else if (o->patience.looked_ns != looked && patience_gone(&o->patience)) {
		char text[64];
		snprintf(text, sizeof text, "Open vSwitch has ended (process %d)", o->patience.pid);
		lost(f, text);
	}
}
