/* What a switch stamps on a frame whose control asks for telemetry (wire/telemetry.c). */
#include "engine/fabric.h"
#include "link/frame.h"
#include "link/port.h"
#include "switch/switch.h"
#include "wire/ethernet.h"
#include "wire/telemetry.h"

/* Eight bits of a port, mixed so that those of a path rarely cancel out those of another */
static uint8_t id(const struct port *p)
{
	return (uint8_t)((p->node->index * 2654435761u ^ p->number * 2246822519u) >> 24);
}

/* switch_stamp() - A frame starts on a switch's cable */
void switch_stamp(struct fabric *f, const struct port *p, unsigned class, struct frame *fr)
{
	telemetry_stamp(fr->data, frame_near(fr), fr->away,
			&(struct hop){.t = (uint32_t)(f->clock.now >> 8),
				      .tx_bytes = (uint32_t)(p->tx_bytes + GAP_BYTES * p->tx_frames),
				      .queue_bytes = (uint32_t)p->queue[class].bytes,
				      .rate_mbps = (uint32_t)(p->cable->p.rate_bps / 1000000)},
			id(p));
}
