/* Telemetry: what congestion controls want to know from the network
 *
 * Theory of Operation
 *
 * If its control wants it, a data packet carries a block behind its IP packet, as
 * Ethernet padding: RoCE headers, their decoding and the ICRC stay as they are.
 *
 *	u8 'T', u8 room, u8 hops, u8 path, u16 seen, u16 marked, u64 sent (ps),
 *	room x { u32 time (256 ps), u32 bytes sent, u32 queue, u32 rate (Mb/s) }
 *
 * all big endian.  Each switch fills the next free hop when the frame starts on
 * the cable, and adds itself to `path` by exclusive or; bytes sent count preamble and gap, so that a full cable is at its
 * rate.  The receiver sends the block back behind the acknowledgement of the packet,
 * without room for more hops.  It adds how many data packets it has seen since the
 * last acknowledgement, and how many of them were marked CE.
 *
 * The sender says how many hops there is room for.  HPCC's own header has 42 bytes for
 * five hops, in the UDP payload.  This block then has 96; they take time on the wire and
 * room in buffers like all other bytes.
 */
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "wire/ethernet.h"
#include "wire/telemetry.h"

#define MARK 'T'
#define HEAD_BYTES 16
#define HOP_BYTES 16

/* telemetry_append() - Put a block behind a frame
 * Return: the frame's length with it
 */
uint32_t telemetry_append(uint8_t *frame, uint32_t len, const struct telemetry *t)
{
	uint8_t *p = frame + len;

	p = put_u8(put_u8(put_u8(put_u8(p, MARK), t->room), t->hops), t->path);
	p = put_be64(put_be16(put_be16(p, t->seen), t->marked), t->sent_ps);
	for (unsigned i = 0; i < t->hops; i++) {
		const struct hop *h = &t->hop[i];
		p = put_be32(put_be32(put_be32(put_be32(p, h->t), h->tx_bytes), h->queue_bytes), h->rate_mbps);
	}
	memset(p, 0, (size_t)(t->room - t->hops) * HOP_BYTES);
	return (uint32_t)(p - frame) + (t->room - t->hops) * HOP_BYTES;
}

/* Where the block begins: behind the IP packet; the view is bad if there is none
 * @away:	Bytes of the IP packet that are not in the frame, and not counted by @len
 */
static struct view behind_ip(const uint8_t *frame, size_t len, uint32_t away)
{
	struct view v = view_of(frame, len);

	view_take(&v, ETH_BYTES + 2);
	uint16_t ip_bytes = get_be16(&v);
	v = view_of(frame, len);
	view_take(&v, ETH_BYTES);
	view_take(&v, ip_bytes < away ? SIZE_MAX : (size_t)ip_bytes - away);
	return v;
}

/* telemetry_behind() - What follows behind the IP packet and its block, if it has one; likewise */
struct view telemetry_behind(const uint8_t *frame, size_t len, uint32_t away)
{
	struct view v = behind_ip(frame, len, away);

	if (!v.bad && v.left >= HEAD_BYTES && v.p[0] == MARK)
		view_take(&v, TELEMETRY_BYTES((size_t)v.p[1]));
	return v;
}

/* telemetry_sent() - A frame starts on its NIC's cable: say when */
void telemetry_sent(uint8_t *frame, size_t len, uint32_t away, uint64_t sent_ps)
{
	struct view v = behind_ip(frame, len, away);

	if (!v.bad && v.left >= HEAD_BYTES && v.p[0] == MARK)
		put_be64(frame + (v.p - frame) + 8, sent_ps);
}

static void have_hops(struct telemetry *t)
{
	if (!t->hop && !(t->hop = calloc(HOPS_MAX, sizeof *t->hop)))
		abort();
}

/* telemetry_read() - Take a frame's block in; `present` says whether there was one */
void telemetry_read(const uint8_t *frame, size_t len, uint32_t away, struct telemetry *t)
{
	struct view v = behind_ip(frame, len, away);
	uint8_t mark = get_u8(&v);

	*t = (struct telemetry){.hop = t->hop};
	t->room = get_u8(&v);
	t->hops = get_u8(&v);
	t->path = get_u8(&v);
	t->seen = get_be16(&v);
	t->marked = get_be16(&v);
	t->sent_ps = get_be64(&v);
	if (v.bad || mark != MARK || t->room > HOPS_MAX || t->hops > t->room || t->sent_ps > INT64_MAX) {
		*t = (struct telemetry){.hop = t->hop};
		return;
	}
	if (t->hops)
		have_hops(t);
	for (unsigned i = 0; i < t->hops; i++) {
		struct hop *h = &t->hop[i];
		h->t = get_be32(&v);
		h->tx_bytes = get_be32(&v);
		h->queue_bytes = get_be32(&v);
		h->rate_mbps = get_be32(&v);
	}
	t->present = !v.bad;
}

/* telemetry_copy() - Let one be like another, with hops of its own */
void telemetry_copy(struct telemetry *to, const struct telemetry *from)
{
	struct hop *hop = to->hop;

	*to = *from;
	to->hop = hop;
	if (!from->hops)
		return;
	have_hops(to);
	memcpy(to->hop, from->hop, from->hops * sizeof *to->hop);
}

void telemetry_release(struct telemetry *t)
{
	free(t->hop);
}

/* telemetry_stamp() - A frame starts on a switch's cable: fill the next hop, if it asks for that
 * @port:	What tells this port from others
 */
void telemetry_stamp(uint8_t *frame, size_t len, uint32_t away, const struct hop *h, uint8_t port)
{
	struct view v = behind_ip(frame, len, away);

	if (v.bad || v.left < HEAD_BYTES || v.p[0] != MARK || v.p[2] >= v.p[1] ||
	    v.left < HEAD_BYTES + (size_t)v.p[1] * HOP_BYTES)
		return;
	uint8_t *block = frame + (v.p - frame);
	uint8_t *at = block + HEAD_BYTES + block[2]++ * HOP_BYTES;
	block[3] ^= port;
	put_be32(put_be32(put_be32(put_be32(at, h->t), h->tx_bytes), h->queue_bytes), h->rate_mbps);
}
