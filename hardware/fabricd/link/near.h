/* While an event runs, what the next ones will look at is brought near
 *
 * In a large fabric two events have nothing in common: the next one's frame and port were looked at so long ago that
 * they are in no cache, and to wait for their memory would take longer than all else.  Which events are next the heap
 * says.  What is asked for in vain changes nothing.
 */
#ifndef LINK_NEAR_H
#define LINK_NEAR_H

#include "base/lines.h"
#include "engine/event.h"
#include "engine/fabric.h"
#include "link/port.h"

#define NEAR_EVENTS 3 /* of those in the heap: as a rule the next one is among them */
#define NEAR_CROWD 64 /* with fewer lanes than that what belongs to their events is in a cache anyway */
#define NEAR_FRAME_LINES 4 /* up to its headers */
#define NEAR_PORT_LINES 3

/* near_what_is_next() - Ask for it; the event that runs has been taken out */
static inline void near_what_is_next(const struct fabric *f)
{
	if (f->heap.entries < NEAR_CROWD)
		return;
	for (size_t i = 0; i < NEAR_EVENTS; i++) {
		const struct heap_entry *soon = event_soon(&f->heap, i);
		if (!soon)
			continue;
		struct event e = {.key = soon->key};
		enum event_kind kind = event_kind(&e);
		lines_near(soon->a, NEAR_FRAME_LINES);
		if (kind == EV_ARRIVE || kind == EV_FORWARD) {
			uint32_t number = kind == EV_ARRIVE ? event_port(&e) : event_other(&e);
			lines_near(&f->nodes[event_node(&e)]->ports[number - 1], NEAR_PORT_LINES);
		}
	}
}

#endif
