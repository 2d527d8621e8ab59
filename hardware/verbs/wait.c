/* Waiting: the session's packets of records, and what each is dealt with by
 *
 * Theory of Operation
 *
 * One thread at a time waits, without the lock.  Another that has something to say interrupts it, by saying anything:
 * fabricd ends the wait then (session_begin).  One that wants to wait, too, waits for the first: what comes is dealt with
 * for all.  If it waits for less, or not as long, the first goes on to wait for that (also_waits).
 *
 * With the virtual clock time goes on only while no thread runs: before the first says that the process waits, it lets the
 * others come to rest (rest).  So what they do has the time at which they were woken, however long it takes them.
 *
 * A signal does not find a thread in here: its handler may do what it likes, as wait itself.  So signals are blocked while
 * the thread waits, and one that comes ends the wait; it is delivered when the lock is free (session_signals).
 */
#include "railbed.h"

#include <errno.h>
#include <signal.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <sys/single_threaded.h>
#include <sys/syscall.h>
#include <unistd.h>

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

static __thread bool blocked; /* signals are, and which were before: */
static __thread sigset_t were;
static __thread const sigset_t *wanted; /* or which are to be, for as long as it waits */

static void block(void)
{
	sigset_t most;

	if (blocked || session_depth != 1)
		return;
	railbed_most(&most);
	pthread_sigmask(SIG_BLOCK, &most, &were);
	blocked = true;
}

/* session_signals() - The lock is free: signals are delivered */
void session_signals(void)
{
	if (!blocked)
		return;
	blocked = false;
	pthread_sigmask(SIG_SETMASK, &were, NULL);
}

/* session_signalled() - Is there a signal for the thread, while it waits? */
bool session_signalled(void)
{
	const sigset_t *mask = wanted ? wanted : &were;
	sigset_t pending;

	if (!blocked || sigpending(&pending))
		return false;
	for (int i = 1; i <= SIGRTMAX; i++)
		if (sigismember(&pending, i) == 1 && !sigismember(mask, i))
			return true;
	return false;
}

/* session_masked() - Wait as session_wait(1, until), with these signals blocked alone */
void session_masked(uint64_t until, const sigset_t *mask)
{
	wanted = mask;
	session_wait(1, until);
	wanted = NULL;
}

/* Another thread waits already, or has something to say: it deals with what comes for us, too */
static void also_waits(uint32_t records, uint64_t until, uint32_t flags)
{
	bool inside = !(flags & WAIT_OUTSIDE), less = records < session.records || until < session.until || inside > session.inside;

	less = less || flags & ~(session.flags | WAIT_OUTSIDE);

	session.inside = session.inside || inside;
	session.flags |= flags & ~WAIT_OUTSIDE;
	session.records = records < session.records ? records : session.records;
	session.until = until < session.until ? until : session.until;
	if (session.waiting && less && !session.interrupted) {
		session.interrupted = true;
		session_interrupt();
	}
	block();
	lock_wait(&session.lock, &session.changed);
}

/* Other threads go on until each of them waits; what they wait for is waited for, too */
static void rest(void)
{
	if (!session_watch || __libc_single_threaded || session_depth != 1 || !session.records)
		return;
	session.resting = true;
	session_depth = 0;
	struct had had = lock_leave(&session.lock);
	session_watch->rest();
	lock_enter(&session.lock, had);
	session_depth = 1;
	session.resting = false;
	session.moved = true; /* it may not come to a wait */
}

static uint32_t wait_for(uint32_t records, uint64_t until, uint32_t flags)
{
	if (session.fd < 0)
		return 0;
	if (session.waiting || session.resting || session.wanted) {
		if (session_depth == 1)
			also_waits(records, until, flags);
		return 0;
	}
	session.records = records < session.records ? records : session.records;
	session.until = until < session.until ? until : session.until;
	session.flags |= flags & ~WAIT_OUTSIDE;
	session.inside = session.inside || !(flags & WAIT_OUTSIDE);
	rest();
	if (session_depth == 1)
		demand_look();
	if (session.fd < 0)
		return 0;
	const struct wire_wait wait = {.records = session.records, .until = session.until < session.alarm ? session.until : session.alarm,
				       .flags = session.flags | (session.inside || session.alarm != NEVER ? 0 : WAIT_OUTSIDE)};
	memcpy(session_command(WAIT, sizeof wait), &wait, sizeof wait);
	session.waits++;
	session_flush();
	struct had had = {0};
	session.waiting = session_depth == 1;
	if (session.waiting) {
		block();
		session_depth = 0;
		had = lock_leave(&session.lock);
	}
	long n = session.fd < 0 ? 0 : session_receive();
	if (session.waiting) {
		lock_enter(&session.lock, had);
		session_depth = 1;
		session.waiting = false;
		bell_ring(&session.changed, INT_MAX);
	}
	if (!session.interrupted) {
		session.records = UINT32_MAX;
		session.until = NEVER;
		session.flags = 0;
		session.inside = false;
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

/* session_outside() - Likewise, until that time, for what is none of ours */
void session_outside(uint64_t until)
{
	wait_for(UINT32_MAX, until, WAIT_OUTSIDE);
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

static bool readable(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return syscall(SYS_poll, &p, 1, 0) == 1;
}

/* session_read() - Read what records have brought there, or wait for it; -1, with errno: there is none, and nobody waits for
 * it (O_NONBLOCK), or none will come
 *
 * Of two threads that wait the other finds nothing then, and waits here: in the kernel nobody would let time go on.
 */
long session_read(int fd, void *to, size_t n)
{
	int flags = fcntl(fd, F_GETFL);
	bool blocks = !(flags & O_NONBLOCK);
	long got = -1;

	while (flags >= 0) {
		pthread_testcancel(); /* as the read that this stands for */
		session_lock();
		bool there = readable(fd);
		if (!there && session.fd >= 0) {
			session_wait(blocks, blocks ? session.now + session.spend + session_slice(10) : NEVER);
			there = readable(fd);
		}
		if (there)
			got = syscall(SYS_read, fd, to, n);
		bool over = session.fd < 0 || !blocks;
		session_unlock();
		if (there)
			return got;
		if (over) {
			errno = session.lost ? EIO : EAGAIN;
			return -1;
		}
	}
	return -1;
}

/* session_slice() - How long to look at an empty queue before the program may look elsewhere (ps) */
uint64_t session_slice(unsigned empties)
{
	if (session.real)
		return 1000000000ull / place()->dilation; /* 1 ms on the machine's clock */
	return 1000000ull << (empties > 10 ? 10 : empties);
}
