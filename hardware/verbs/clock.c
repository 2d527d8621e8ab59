/* The process's emulated clock: read, waited on, and waited on for what happens to the NIC (clock.h) */
#include "railbed.h"

#define LOOKS 384 /* at a clock, after which each takes longest */

/* railbed_now() - The process's emulated time (ps); reading it costs so much
 *
 * A loop that does nothing but look at the time does not end at the next nanosecond: from its 64th look on each takes
 * longer, up to 1 us.
 */
uint64_t railbed_now(uint64_t cost_ps)
{
	session_lock();
	if (session_open() && (session.asked || session.real) && session_depth == 1) {
		session_begin();
		session_wait(0, NEVER);
	}
	if (session.looks > LOOKS && session.looks % 16 == 0 && session_depth == 1 && session_polls()) {
		uint64_t so_far = session.looks; /* it sees what is written meanwhile */
		session_wait(0, NEVER);
		session.looks = so_far;
	}
	uint64_t t = session.now + session.spend, looks = cost_ps ? session.looks++ / 64 : 0, most = 1000 * PS_PER_NS;
	cost_ps = cost_ps << (looks > 6 ? 6 : looks);
	if (!session.real)
		session.spend += cost_ps < most ? cost_ps : most;
	session_unlock();
	return t;
}

/* railbed_wait() - Sleep until that time (ps), or until something is due, a signal has come, or another thread has
 * something to say; what happens meanwhile is taken in
 */
void railbed_wait(uint64_t until)
{
	session_lock();
	if (session_open() && session.now + session.spend < until && session.now + session.spend < session.alarm)
		session_wait(UINT32_MAX, until);
	if (session.lost && session.now + session.spend < until)
		session.spend = until - session.now;
	session_unlock();
}

/* railbed_lost() - Had the process a session that is over? */
bool railbed_lost(void)
{
	return session.lost;
}

/* railbed_emulated() - Is this process's clock the virtual one?  Opens the session */
bool railbed_emulated(void)
{
	session_lock();
	bool yes = session_open() && !session.real;
	session_unlock();
	return yes;
}

/* railbed_happens() - Wait until something happens to the NIC, or until that time (ps) */
void railbed_happens(uint64_t until)
{
	session_lock();
	if (session_open())
		session_wait(1, until);
	session_unlock();
}

/* railbed_outside() - The same for a process that waits for what is none of ours, as for a child to end */
void railbed_outside(uint64_t until)
{
	session_lock();
	if (session_open())
		session_outside(until);
	session_unlock();
}

/* railbed_masked() - railbed_happens, ended also by a signal that is not among these */
void railbed_masked(uint64_t until, const sigset_t *mask)
{
	session_lock();
	if (session_open())
		session_masked(until, mask);
	session_unlock();
}

/* railbed_alarm() - When something is due next */
void railbed_alarm(uint64_t at)
{
	session_lock();
	session_begin(); /* who waits for longer waits anew */
	session.alarm = at;
	session_unlock();
}

/* railbed_busy() - Is this thread within this library? */
bool railbed_busy(void)
{
	return session_depth > 0;
}

/* railbed_said() - How much the process has said and waited: has it done anything since? */
uint64_t railbed_said(void)
{
	return session.said;
}

/* railbed_written() - Wait until a peer has written to our memory, or for as long as one looks at an empty queue */
void railbed_written(unsigned empties)
{
	session_lock();
	if (session_open())
		session_poll(empties);
	session_unlock();
}

/* railbed_open() - Has the process a session? */
bool railbed_open(void)
{
	return session.fd >= 0;
}
