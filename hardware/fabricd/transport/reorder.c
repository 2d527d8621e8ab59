/* Selective repeat: packets that came ahead, and packets to be sent again
 *
 * Theory of Operation
 *
 * Receiver: a packet ahead of the expected one is kept, up to reorder_packets
 * ahead, until all before it are there.  Each such packet is answered by a NAK
 * (sequence error) that names the expected packet and, in the field of the
 * message number, the one that has come: the two numbers of IRN's NACK (Mittal et
 * al., SIGCOMM 2018, section 3.1).
 *
 * Sender: a bitmap says which packets have come.  The first NAK begins a recovery:
 * packets that have not come, below the highest one that has, are sent again, and
 * then new ones.  Nothing overtakes on one path.  So if a packet has come that was
 * sent after one of those, and that one has not, it was lost again and is sent once
 * more.  A recovery ends when everything is acknowledged that had been sent when it
 * began.  A timeout sends the first packet that is not known to have come, and
 * begins a new recovery.  No more than reorder_packets are under way, so that the
 * receiver can keep all that come.
 */
#include <stdlib.h>

#include "engine/fabric.h"
#include "link/frame.h"
#include "transport/qp.h"
#include "transport/reorder.h"

struct reorder {
	uint32_t room, count;
	struct frame *slot[];
};

struct repeat {
	bool recovering;
	uint32_t room;
	uint64_t end;	  /* recovery lasts until this is acknowledged */
	uint64_t next;	  /* everything below has been looked at */
	uint64_t highest; /* below this something has come */
	uint64_t *again;  /* sent_max when a packet was last sent again, 0: never; modulo room */
	uint64_t bits[];  /* packets that have come, modulo room */
};

/* reorder_keep() - Keep a frame that came @ahead of the expected one
 * Return: whether it is kept; if not, it is the caller's still
 */
bool reorder_keep(struct qp *q, uint32_t ahead, struct frame *fr)
{
	struct reorder *r = q->reorder;
	uint32_t room = q->nic->p.reorder_packets;

	if (!r) {
		r = q->reorder = calloc(1, sizeof *r + room * sizeof(struct frame *));
		if (!r)
			abort();
		r->room = room;
	}
	struct frame **slot = &r->slot[(q->expected + ahead) % r->room];
	if (ahead >= r->room || *slot)
		return false;
	*slot = fr;
	r->count++;
	return true;
}

/* reorder_take() - The expected packet, if it has come already */
struct frame *reorder_take(struct qp *q)
{
	struct reorder *r = q->reorder;

	if (!r || !r->count)
		return NULL;
	struct frame **slot = &r->slot[q->expected % r->room], *fr = *slot;
	*slot = NULL;
	r->count -= fr != NULL;
	return fr;
}

/* reorder_drop() - Forget everything that came ahead: the sender starts anew from the expected packet */
void reorder_drop(struct fabric *f, struct qp *q)
{
	struct reorder *r = q->reorder;

	for (uint32_t i = 0; r && r->count && i < r->room; i++)
		if (r->slot[i]) {
			frame_release(f, r->slot[i]);
			r->slot[i] = NULL;
			r->count--;
		}
}

static bool bit(const struct repeat *r, uint64_t n)
{
	return r->bits[n % r->room / 64] >> (n % 64) & 1;
}

static struct repeat *repeat_of(struct qp *q)
{
	uint32_t words = q->nic->p.reorder_packets / 64 + 2;

	if (!q->repeat) {
		q->repeat = calloc(1, sizeof *q->repeat + words * sizeof(uint64_t));
		if (!q->repeat)
			abort();
		q->repeat->room = words * 64;
		q->repeat->again = calloc(q->repeat->room, sizeof(uint64_t));
		if (!q->repeat->again)
			abort();
	}
	return q->repeat;
}

static void recover(struct qp *q, struct repeat *r, uint64_t highest)
{
	if (!r->recovering) {
		r->recovering = true;
		r->end = q->sent_max;
		r->next = q->acked;
		r->highest = q->acked;
	}
	if (highest > r->highest)
		r->highest = highest;
}

/* repeat_came() - A NAK says that packet @n has come; the expected one itself: that one ahead could not be kept */
void repeat_came(struct qp *q, uint64_t n)
{
	struct repeat *r = repeat_of(q);

	if (n < q->acked || n >= q->sent_max || n - q->acked >= r->room)
		return;
	if (n > q->acked) /* otherwise it only says what is missing: it could not be kept */
		r->bits[n % r->room / 64] |= 1ull << (n % 64);
	recover(q, r, n > q->acked ? n : n + 1);
	if (r->again[q->acked % r->room] && n >= r->again[q->acked % r->room])
		r->next = q->acked;
}

/* repeat_timeout() - Nothing was heard: the first packet that is not known to have come goes again, and whatever was
 * found missing once more.  If all have come, the first, so that the receiver says so
 */
void repeat_timeout(struct qp *q)
{
	struct repeat *r = repeat_of(q);
	uint64_t n = q->acked;

	while (n < q->sent_max && bit(r, n))
		n++;
	if (n == q->sent_max) {
		n = q->acked;
		r->bits[n % r->room / 64] &= ~(1ull << (n % 64));
	}
	uint64_t highest = r->recovering && r->highest > n ? r->highest : n + 1;
	r->recovering = false;
	r->again[n % r->room] = 0;
	recover(q, r, highest);
}

/* repeat_acked() - Everything below q->acked has come; it was @before */
void repeat_acked(struct qp *q, uint64_t before)
{
	struct repeat *r = q->repeat;

	if (!r)
		return;
	for (uint64_t n = before; n < q->acked; n++) {
		r->bits[n % r->room / 64] &= ~(1ull << (n % 64));
		r->again[n % r->room] = 0;
	}
	if (r->recovering && q->acked >= r->end)
		r->recovering = false;
}

/* repeat_forget() - The receiver has forgotten what came ahead */
void repeat_forget(struct qp *q)
{
	struct repeat *r = q->repeat;

	for (uint32_t i = 0; r && i < r->room; i++)
		r->bits[i / 64] = r->again[i] = 0;
	if (r)
		r->recovering = false;
}

/* repeat_next() - The next packet to be sent again
 * Return: whether there is one
 */
bool repeat_next(const struct qp *q, uint64_t *n)
{
	struct repeat *r = q->repeat;

	if (!r || !r->recovering)
		return false;
	if (r->next < q->acked)
		r->next = q->acked;
	while (r->next < r->highest && (bit(r, r->next) || r->again[r->next % r->room] > r->highest))
		r->next++;
	*n = r->next;
	return r->next < r->highest;
}

/* repeat_sent() - That packet goes out now */
void repeat_sent(struct qp *q)
{
	struct repeat *r = q->repeat;

	r->again[r->next++ % r->room] = q->sent_max;
}

void reorder_release(struct qp *q)
{
	free(q->reorder);
	if (q->repeat)
		free(q->repeat->again);
	free(q->repeat);
}
