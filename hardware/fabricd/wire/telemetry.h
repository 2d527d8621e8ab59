/* The block of telemetry behind a packet: what congestion controls want to know from the network (telemetry.c) */
#ifndef WIRE_TELEMETRY_H
#define WIRE_TELEMETRY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"

#define HOPS_MAX 63 /* a packet's TTL ends there */
#define TELEMETRY_BYTES(hops) (16 + 16 * (hops))
#define TELEMETRY_MAX_BYTES TELEMETRY_BYTES(HOPS_MAX)

/* What a switch stamps on a frame that asks for it (in-band telemetry of HPCC) */
struct hop {
	uint32_t t;	   /* 256 ps units, modulo 2^32 */
	uint32_t tx_bytes; /* modulo 2^32 */
	uint32_t queue_bytes;
	uint32_t rate_mbps;
};

/* What rides behind the IP packet and comes back with the acknowledgement.  Zeroed at first, released at the end */
struct telemetry {
	bool present;
	uint8_t hops;	       /* stamped */
	uint8_t room;	       /* that there is room for */
	uint8_t path;	       /* another one, most likely, if the hops are others */
	uint16_t seen, marked; /* data packets since the last acknowledgement, and those with CE */
	uint64_t sent_ps;      /* when the acknowledged packet left */
	struct hop *hop;       /* HOPS_MAX of them, or NULL: there were none yet */
};

uint32_t telemetry_append(uint8_t *frame, uint32_t len, const struct telemetry *t);
void telemetry_sent(uint8_t *frame, size_t len, uint32_t away, uint64_t sent_ps);
void telemetry_read(const uint8_t *frame, size_t len, uint32_t away, struct telemetry *t);
void telemetry_copy(struct telemetry *to, const struct telemetry *from);
struct view telemetry_behind(const uint8_t *frame, size_t len, uint32_t away);
void telemetry_release(struct telemetry *t);
void telemetry_stamp(uint8_t *frame, size_t len, uint32_t away, const struct hop *h, uint8_t port);

#endif
