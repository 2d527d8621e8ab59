/* Waiting: the session's packets of records, and what each is dealt with by
 *
 * Theory of Operation
 *
 * One thread at a time waits, without the lock.  Another that has something to say interrupts it, by saying anything:
 * fabricd ends the wait then (session_begin).  One that wants to wait, too, waits for the first: what comes is dealt with
 * for all.  If it waits for less, or not as long, the first goes on to wait for that (also_waits).
 */
#include "railbed.h"

#include <string.h>

#include "wire.h"

#define POSTS_MOST 32768

static void record(const struct wire_record *r)
{
	switch (r->kind) {
	case REC_SENT: post_sent(r->wr_id, r->status, r->qp, r->bytes); break;
	case REC_RECEIVED:
	case REC_RECEIVED_IMM:
	case REC_RECEIVED_SEND_IMM:
	case REC_RECEIVED_SEND_INV:
	case REC_RECEIVED_DATAGRAM:
	case REC_RECEIVED_DATAGRAM_IMM: post_received(r); break;
	case REC_QP_EVENT: qp_event(r->qp, r->imm); break;
	case REC_SRQ_LIMIT: shared_low(r->qp); break;
	default: break;
	}
}

static uint32_t take_in(void)
{
	struct wire_records head;
	const uint8_t *p = session.in + 8 + sizeof head;

	memcpy(&head, session.in + 8, sizeof head);
	if (session_watch && head.now != session.now)
		session_watch->moved();
	session.now = head.now;
	session.asked = false;
	session.posted = 0;
	for (uint32_t i = 0; i < head.count; i++) {
		struct wire_record r;
		memcpy(&r, p, sizeof r);
		record(&r);
		p += r.length;
	}
	return head.count;
}

/* Another thread waits already, or has something to say: it deals with what comes for us, too */
static void also_waits(uint32_t records, uint64_t until, uint32_t flags)
{
	bool less = records < session.records || until < session.until || flags & ~session.flags;

	session.flags |= flags;
	session.records = records < session.records ? records : session.records;
	session.until = until < session.until ? until : session.until;
	if (session.waiting && less && !session.interrupted) {
		session.interrupted = true;
		session_interrupt();
	}
	pthread_cond_wait(&session.changed, &session.lock);
}

static uint32_t wait_for(uint32_t records, uint64_t until, uint32_t flags)
{
	if (session.fd < 0)
		return 0;
	if (session.waiting || session.wanted) {
		if (session_depth == 1)
			also_waits(records, until, flags);
		return 0;
	}
	if (session_depth == 1)
		demand_look();
	session.records = records < session.records ? records : session.records;
	session.until = until < session.until ? until : session.until;
	session.flags |= flags;
	const struct wire_wait wait = {.records = session.records, .until = session.until < session.alarm ? session.until : session.alarm,
				       .flags = session.flags};
	memcpy(session_command(WAIT, sizeof wait), &wait, sizeof wait);
	session.waits++;
	session_flush();
	session.waiting = session_depth == 1;
	if (session.waiting) {
		session_depth = 0;
		pthread_mutex_unlock(&session.lock);
	}
	long n = session.fd < 0 ? 0 : session_receive();
	if (session.waiting) {
		pthread_mutex_lock(&session.lock);
		session_depth = 1;
		session.waiting = false;
		pthread_cond_broadcast(&session.changed);
	}
	if (!session.interrupted) {
		session.records = UINT32_MAX;
		session.until = NEVER;
		session.flags = 0;
	}
	session.interrupted = false;
	return session_heard(n, REPLY_RECORDS) ? take_in() : 0;
}

/* session_wait() - Wait until so many records are due, or until that time (ps); how many came.  They have been dealt with
 *
 * Returns earlier if another thread has something to say, or waits already.
 */
uint32_t session_wait(uint32_t records, uint64_t until)
{
	return wait_for(records, until, 0);
}

/* session_room() - One request more is posted: of those that have not reached the NIC yet fabricd takes no more than so many */
void session_room(void)
{
	if (++session.posted >= POSTS_MOST && session_depth == 1 && session.fd >= 0)
		session_wait(0, NEVER);
}

/* session_poll() - A queue was empty: wait for a record, or for what a peer writes to our memory, which may be looked at, too */
void session_poll(unsigned empties)
{
	wait_for(1, session.now + session.spend + session_slice(empties), session.open ? WAIT_WRITTEN : 0);
}

/* session_slice() - How long to look at an empty queue before the program may look elsewhere (ps) */
uint64_t session_slice(unsigned empties)
{
	if (session.real)
		return 1000000000ull / place()->dilation; /* 1 ms on the machine's clock */
	return 1000000ull << (empties > 10 ? 10 : empties);
}
