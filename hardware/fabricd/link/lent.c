/* Payload that is lent to frames
 *
 * Theory of Operation
 *
 * A queue pair's packet carries its headers, and where its payload lies: in memory that
 * belongs to the NIC from the post of a request until its completion.  So it is copied
 * once, when it is delivered.  Whoever wants to see all bytes of a frame before that (a
 * capture, a fault that changes bytes, Open vSwitch) makes it whole first: the payload is
 * copied into it, and only then its ICRC is computed.
 *
 * What the memory's owner gets back must not be read any more.  So whatever is still under
 * way when a request ends, or when the memory goes, is recalled: it gets a copy of its
 * payload.  For that a lender has a list of its frames, in the order of their numbers.  Only
 * what is sent for the first time is lent, so the list needs no sorting, and a look at its
 * first frame shows whether there is anything to recall.  What is sent again is read again,
 * and carries its own copy.
 */
#include <string.h>

#include "base/copies.h"
#include "base/copy.h"
#include "base/units.h"
#include "engine/fabric.h"
#include "link/frame.h"
#include "wire/ethernet.h"
#include "wire/roce.h"

static uint32_t padding(uint32_t bytes)
{
	return -bytes & 3;
}

/* frame_lend() - Let a frame that has its headers carry payload without a copy
 * @fr:		With its number and length, and no telemetry yet
 * @payload:	Stays as it is until lender_recall() says that it may change
 */
void frame_lend(struct frame *fr, struct lender *l, const uint8_t *payload, uint32_t bytes)
{
	fr->lent = payload;
	fr->away = (uint16_t)(bytes + padding(bytes) + ICRC_BYTES); /* a NIC's MTU is at most 9000 bytes */
	fr->unsealed = true;
	fr->lender = l;
	fr->older = l->last;
	if (l->last)
		l->last->newer = fr;
	else
		l->first = fr;
	l->last = fr;
}

/* lent_follow() - A copy of a frame carries the same payload; in the list it stands behind it */
void lent_follow(struct frame *fr, struct frame *copy)
{
	copy->lent = fr->lent;
	copy->away = fr->away;
	copy->number = fr->number;
	copy->lender = fr->lender;
	copy->older = fr;
	copy->newer = fr->newer;
	if (fr->newer)
		fr->newer->older = copy;
	else
		fr->lender->last = copy;
	fr->newer = copy;
}

/* lent_end() - A frame needs what was lent to it no longer */
void lent_end(struct frame *fr)
{
	struct lender *l = fr->lender;

	if (fr->older)
		fr->older->newer = fr->newer;
	else
		l->first = fr->newer;
	if (fr->newer)
		fr->newer->older = fr->older;
	else
		l->last = fr->older;
	fr->lent = NULL;
	fr->lender = NULL;
	fr->older = fr->newer = NULL;
}

/* Bytes of telemetry behind a frame's IP packet, which has something away */
static uint32_t behind_ip(const struct frame *fr)
{
	return fr->len - ETH_BYTES - (uint32_t)(fr->data[ETH_BYTES + 2] << 8 | fr->data[ETH_BYTES + 3]);
}

/* Copy the payload into a frame; the ICRC stays open */
static void fetch(struct fabric *f, struct frame *fr)
{
	uint32_t behind = behind_ip(fr);
	uint32_t headers = frame_near(fr) - behind, away = fr->away;

	frame_grow(f, fr);
	memmove(fr->data + headers + away, fr->data + headers, behind);
	memset(fr->data + headers + away - ICRC_BYTES - 4, 0, ICRC_BYTES + 4); /* padding at the most, and the ICRC */
	copies_settle();
	copy_payload(fr->data + headers, fr->lent, roce_payload_bytes(fr->data, away));
	fr->away = 0;
	lent_end(fr);
}

/* frame_whole() - Have all bytes of a frame in place, for somebody who looks at them */
void frame_whole(struct fabric *f, struct frame *fr)
{
	if (fr->lent)
		fetch(f, fr);
	if (fr->unsealed)
		roce_seal(fr->data);
	fr->unsealed = false;
}

/* frame_cut() - Of a frame its first @len bytes are left, which end within its IP packet; of what was lent to it, what is among them */
void frame_cut(struct fabric *f, struct frame *fr, uint32_t len)
{
	uint32_t headers = fr->lent ? frame_near(fr) - behind_ip(fr) : 0;

	if (fr->lent && len <= headers + roce_payload_bytes(fr->data, fr->away)) {
		if (len + TRAILER_BYTES > FRAME_HEAD_BYTES)
			frame_grow(f, fr);
		copies_settle();
		if (len > headers)
			memcpy(fr->data + headers, fr->lent, len - headers);
		fr->away = 0;
		lent_end(fr);
	} else {
		frame_whole(f, fr);
	}
	fr->len = len;
	fr->unsealed = false;
}

/* lender_recall() - Let go of payload: frames with numbers below @end get copies of what was lent to them */
void lender_recall(struct fabric *f, struct lender *l, uint64_t end)
{
	while (l->first && l->first->number < end)
		fetch(f, l->first);
}

/* frame_parse() - Take a frame apart; if it was made here and nobody has changed it, its ICRC needs no look
 * Return: enum roce_verdict
 */
enum roce_verdict frame_parse(const struct frame *fr, struct roce_packet *pkt)
{
	if (!fr->unsealed)
		return roce_parse(fr->data, fr->len, pkt);
	enum roce_verdict verdict = roce_parse_unsealed(fr->data, fr->len, fr->away, pkt);
	if (fr->away)
		pkt->payload = fr->lent;
	return verdict;
}
