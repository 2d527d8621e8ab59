/* The keeper: a thread that lets time go on while all others wait in calls of the C library or the kernel
 *
 * Theory of Operation
 *
 * Whoever waits in our calls waits at fabricd, and so does the process.  If threads wait for each other with a limit
 * (limits.c), or for what is none of ours, as for a child to end (outside.c), nobody does, and the fabric's clock would
 * stand.  So the keeper waits in their place, as soon as no other thread runs (threads.c): until the first limit, or for
 * nothing at all.
 *
 * Limits are due as timers are (timers.c): no wait of the process goes beyond the first.
 *
 * A handler of signals may wait while its thread is in here, and then has the lock, too: what is changed under it is so by
 * one store each.
 */
#include "keeper.h"
#include "emulated.h"
#include "lock.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NEVER UINT64_MAX
#define STACK 65536

static struct limit *limits;
static unsigned outside; /* so many threads wait for what is none of ours */
static struct lock lock;
static struct bell changed;
static bool kept; /* there is a keeper */

static uint64_t first(void)
{
	uint64_t due = NEVER;

	for (const struct limit *l = limits; l; l = l->next)
		if (!l->over && l->due < due)
			due = l->due;
	return due;
}

/* limits_first() - When the first is due */
uint64_t limits_first(void)
{
	lock_take(&lock);
	uint64_t due = first();
	lock_give(&lock);
	return due;
}

/* limits_due() - Time has come so far: is any limit over by that? */
bool limits_due(uint64_t now)
{
	bool any = false;

	lock_take(&lock);
	for (struct limit *l = limits; l; l = l->next)
		if (!l->over && l->due <= now)
			any = l->over = true;
	lock_give(&lock);
	return any;
}

/* limits_wake() - Is there another thread whose limit is over, or that has a signal to let in, and that will go on?
 *
 * One that sleeps without a limit of the kernel's needs what another thread has; and ours may be in a handler.
 */
bool limits_wake(void)
{
	int self = (int)syscall(SYS_gettid);
	bool any = false;

	lock_take(&lock);
	for (struct limit *l = limits; l; l = l->next)
		any = any || (l->thread != self && ((l->over && threads_awakes(l->thread)) ||
						    (l->lets && threads_signalled(l->thread, l->lets))));
	lock_give(&lock);
	return any;
}

static void *keep(void *unused)
{
	(void)unused;
	for (;;) {
		lock_take(&lock);
		while (first() == NEVER && (!outside || railbed_lost()))
			lock_wait(&lock, &changed);
		uint64_t due = first();
		lock_give(&lock);
		if (railbed_lost())
			limits_due(NEVER - 1);
		else if (due == NEVER)
			railbed_outside(due);
		else
			railbed_happens(due);
	}
	return NULL;
}

/* Under `lock` */
static void have_keeper(void)
{
	pthread_attr_t a;
	pthread_t keeper;
	sigset_t all, was;

	if (kept)
		return;
	railbed_most(&all);
	pthread_attr_init(&a);
	pthread_attr_setstacksize(&a, STACK);
	pthread_attr_setdetachstate(&a, PTHREAD_CREATE_DETACHED);
	pthread_sigmask(SIG_SETMASK, &all, &was);
	kept = !pthread_create(&keeper, &a, keep, NULL);
	pthread_sigmask(SIG_SETMASK, &was, NULL);
	pthread_attr_destroy(&a);
}

/* limit_enter() - A thread waits from now on; @keeper: and cannot let time go on by itself */
void limit_enter(struct limit *l, bool keeper)
{
	lock_take(&lock);
	l->next = limits;
	limits = l;
	if (keeper)
		have_keeper();
	bell_ring(&changed, 1);
	lock_give(&lock);
	timers_plan();
}

/* limit_leave() - It does not any more */
void limit_leave(void *l)
{
	struct limit **at = &limits;

	lock_take(&lock);
	while (*at && *at != l)
		at = &(*at)->next;
	if (*at)
		*at = (*at)->next;
	lock_give(&lock);
	timers_plan();
}

/* outside_begin() - This thread waits for what is none of ours; whether anybody has to know */
bool outside_begin(void)
{
	if (!railbed_open() || !railbed_emulated())
		return false;
	lock_take(&lock);
	outside++;
	have_keeper();
	bell_ring(&changed, 1);
	lock_give(&lock);
	return true;
}

/* outside_end() - It has come, or will not; what outside_begin() has said */
void outside_end(bool begun)
{
	int was = errno;

	if (!begun)
		return;
	lock_take(&lock);
	outside -= outside > 0; /* none is left of a child that comes out of its parent's wait, made by a handler */
	lock_give(&lock);
	timers_plan(); /* the keeper waits no longer */
	errno = was;
}

/* A child has one thread, which waits for nobody */
static void in_child(void)
{
	lock = (struct lock){0};
	changed = (struct bell){0};
	limits = NULL;
	outside = 0;
	kept = false;
}

__attribute__((constructor)) static void begin(void)
{
	pthread_atfork(NULL, NULL, in_child);
}
