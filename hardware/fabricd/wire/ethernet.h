/* Ethernet: what a frame occupies on a cable, and its headers in words. */
#ifndef WIRE_ETHERNET_H
#define WIRE_ETHERNET_H

#include <stddef.h>
#include <stdint.h>

#define ETH_BYTES 14
/* what the wire adds to a frame: FCS, preamble and inter-packet gap */
#define FCS_BYTES 4
#define GAP_BYTES 20
#define MIN_FRAME_BYTES 64 /* with FCS */

/* wire_bytes() - What a frame of @len bytes (without FCS) occupies on a cable */
static inline uint32_t wire_bytes(uint32_t len)
{
	uint32_t frame = len + FCS_BYTES;

	return (frame < MIN_FRAME_BYTES ? MIN_FRAME_BYTES : frame) + GAP_BYTES;
}

void frame_describe(const uint8_t *data, size_t have, size_t len, char *text, size_t room);

#endif
