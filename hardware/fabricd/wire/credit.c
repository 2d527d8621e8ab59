/* Credit on the wire
 *
 * A data packet says what its sender would like to be granted, in a block behind the IP packet, as Ethernet padding, behind
 * that of telemetry if there is one:
 *
 *	u8 'C', u8 0, u16 0, u32 target, u32 end, u32 rest
 *
 * A request is a packet of its own with the payload { u32 target, u32 known, u32 end, u32 rest }; a credit one with
 * { u32 granted, u32 0, u64 0 }.  All numbers are big endian, and what is granted is counted from the connection on: so a credit
 * that is lost is made good by the next one (UEC 1.0, 3.6.14: pull targets and pull numbers).
 */
#include "base/bytes.h"
#include "wire/credit.h"
#include "wire/telemetry.h"

#define MARK 'C'

/* demand_append() - Put a block behind a frame
 * Return: the frame's length with it
 */
uint32_t demand_append(uint8_t *frame, uint32_t len, const struct demand *d)
{
	uint8_t *p = put_be16(put_u8(put_u8(frame + len, MARK), 0), 0);

	return (uint32_t)(put_be32(put_be32(put_be32(p, d->target), d->end), d->rest) - frame);
}

/* demand_read() - A data packet's block; `present` says whether there is one
 * @away:	Bytes of the IP packet that are not in the frame, and not counted by @len
 */
struct demand demand_read(const uint8_t *frame, size_t len, uint32_t away)
{
	struct view v = telemetry_behind(frame, len, away);
	uint8_t mark = get_u8(&v);
	struct demand d = {0};

	view_take(&v, 3);
	d.target = get_be32(&v);
	d.end = get_be32(&v);
	d.rest = get_be32(&v);
	d.present = !v.bad && mark == MARK;
	return d;
}

void request_write(uint8_t *payload, const struct demand *d)
{
	put_be32(put_be32(put_be32(put_be32(payload, d->target), d->known), d->end), d->rest);
}

struct demand request_read(const uint8_t *payload, size_t bytes)
{
	struct view v = view_of(payload, bytes);
	struct demand d = {0};

	d.target = get_be32(&v);
	d.known = get_be32(&v);
	d.end = get_be32(&v);
	d.rest = get_be32(&v);
	d.present = !v.bad;
	return d;
}

void credit_write(uint8_t *payload, uint32_t granted)
{
	put_be64(put_be32(put_be32(payload, granted), 0), 0);
}

bool credit_read(const uint8_t *payload, size_t bytes, uint32_t *granted)
{
	struct view v = view_of(payload, bytes);

	*granted = get_be32(&v);
	return !v.bad;
}
