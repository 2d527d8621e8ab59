/* Frames that are lost: why, counted where it happens, with the headers of the last one. */
#include <stdlib.h>
#include <string.h>

#include "engine/fabric.h"
#include "engine/report.h"
#include "link/frame.h"
#include "link/port.h"
#include "wire/ethernet.h"

#define DROP(kind, name, why) [DROP_##kind] = #name,
static const char *const drop_names[DROPS] = {
#include "link/drops.def"
};
#undef DROP

static const char *const shown_names[SHOWNS] = {
	[SHOWN_SILENT] = "silent",
	[SHOWN_CRC] = "crc",
	[SHOWN_ACL] = "acl",
	[SHOWN_METER] = "meter",
};

const char *drop_name(enum drop why)
{
	return drop_names[why];
}

const char *shown_name(enum shown as)
{
	return shown_names[as];
}

/* shown_find() - By its name
 * Return: whether there is one of that name
 */
bool shown_find(const char *name, enum shown *as)
{
	for (int k = 0; k < SHOWNS; k++)
		if (!strcmp(name, shown_names[k])) {
			*as = (enum shown)k;
			return true;
		}
	return false;
}

/* port_lost() - Count a frame as lost at a port and keep its headers */
void port_lost(struct fabric *f, struct port *p, const struct frame *fr, enum drop why)
{
	struct dropped *last = p->last_drop[why];

	p->drops[why]++;
	p->tc[fr->class].drops++;
	p->tc[fr->class].drop_bytes += fr->len + FCS_BYTES;
	if (!last) {
		last = p->last_drop[why] = malloc(sizeof *last);
		if (!last)
			abort();
	} else if (last->at > f->clock.now) {
		return; /* the near end of a cable drops for the far one, which may have come further in a window */
	}
	last->at = f->clock.now;
	last->len = fr->len;
	memcpy(last->data, fr->data, frame_near(fr) < DROPPED_BYTES ? frame_near(fr) : DROPPED_BYTES);
	if (why == DROP_FORWARDING && p->drops[why] == 1) {
		char text[256];
		frame_describe(fr->data, frame_near(fr), fr->len, text, sizeof text);
		report_event(f, REPORT_FORWARDING_DROP,
			      json_pack("{s:s, s:i, s:s}", "switch", p->node->name, "port", p->number, "headers", text));
	}
}

/* port_drop() - Count a frame as lost at a port, keep its headers, free it */
void port_drop(struct fabric *f, struct port *p, struct frame *fr, enum drop why)
{
	port_lost(f, p, fr, why);
	frame_off_buffer(f, fr);
	frame_release(f, fr);
}
