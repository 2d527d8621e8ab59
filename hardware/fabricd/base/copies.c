/* Copies that another processor carries out
 *
 * Theory of Operation
 *
 * Payload that is delivered has to be copied, and a core that does it waits for memory most
 * of the time.  Nobody needs those bytes before somebody is told of them.  So the event loop
 * enters what is to be copied in a ring, and a thread of its own copies, in the order of the
 * entries: what a copy reads may be what the one before it has written.  Before the bytes can
 * be seen, or what is read can change, the event loop settles: it waits until all is copied.
 *
 * Whoever copies holds `role`: the thread, or the event loop, which does not wait for a thread
 * that sleeps, or that others keep from running, but does what is left by itself.  So it is no
 * loss where processors are busy, and a wake that was missed does no harm.  Few copies are
 * not worth a wake; the thread looks for more for a while before it sleeps.
 *
 * A thread that is kept from running in the middle of a copy has to be waited for.  That shows
 * that others need the processors: the event loop then copies by itself for a while, twice as
 * long each time.
 *
 * The next copy's lines are asked for while one is made.
 */
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>

#include "base/copies.h"
#include "base/copy.h"
#include "base/lines.h"
#include "base/wall.h"

#define ENTRIES 1024
#define WORTH_A_WAKE 16	 /* some 10 us of work */
#define LOOKS 2000	 /* for more, before it sleeps: about 50 us */
#define LOOKS_AND_YIELD 64 /* while somebody else copies */
#define STALL_NS 200000	 /* the thread is kept from running */
#define REST_MIN (1u << 13) /* copies made without it after that */
#define REST_MAX (1u << 20)

struct entry {
	uint8_t *to;
	const uint8_t *from;
	uint32_t bytes;
};

static struct entry ring[ENTRIES];
static bool runs;
static sem_t wake;
static uint32_t rest_left, rest = REST_MIN, without_stall; /* copies */

/* What each side writes has a line of its own */
uint64_t copies_entered;
static _Alignas(LINE_BYTES) _Atomic uint64_t entered; /* copies_entered, for the thread */
_Alignas(LINE_BYTES) _Atomic uint64_t copies_made;
static _Alignas(LINE_BYTES) atomic_bool role;
static _Alignas(LINE_BYTES) atomic_bool asleep;

static inline void pause_briefly(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

static bool take_role(void)
{
	return !atomic_load_explicit(&role, memory_order_relaxed) && !atomic_exchange_explicit(&role, true, memory_order_acquire);
}

static void give_role(void)
{
	atomic_store_explicit(&role, false, memory_order_release);
}

/* One copy, and the lines of the next are asked for */
static void copy_one(const struct entry *x, const struct entry *next)
{
	uint32_t at = 0;

	for (; next && at + LINE_BYTES <= x->bytes && at + LINE_BYTES <= next->bytes; at += LINE_BYTES) {
		__builtin_prefetch(next->from + at, 0);
		__builtin_prefetch(next->to + at, 1);
		memcpy(x->to + at, x->from + at, LINE_BYTES);
	}
	copy_payload(x->to + at, x->from + at, x->bytes - at);
}

/* With the role: make the next copy
 * Return: whether there was one
 */
static bool make_next(void)
{
	uint64_t n = atomic_load_explicit(&copies_made, memory_order_relaxed);
	uint64_t all = atomic_load_explicit(&entered, memory_order_acquire);

	if (n == all)
		return false;
	copy_one(&ring[n % ENTRIES], n + 1 != all ? &ring[(n + 1) % ENTRIES] : NULL);
	atomic_store_explicit(&copies_made, n + 1, memory_order_release);
	return true;
}

static void sleep_until_woken(void)
{
	atomic_store_explicit(&asleep, true, memory_order_relaxed);
	while (sem_wait(&wake))
		; /* interrupted */
}

static void *run(void *unused)
{
	int looks = 0;

	(void)unused;
	for (;;) {
		bool made = false;
		if (take_role()) {
			made = make_next();
			give_role();
		}
		looks = made ? 0 : looks + 1;
		if (looks == LOOKS) {
			sleep_until_woken();
			looks = 0;
		} else if (!made) {
			pause_briefly();
		}
	}
	return NULL;
}

/* copies_start() - Start the thread, if there is a second processor for it
 *
 * Return: whether it runs
 */
bool copies_start(void)
{
	cpu_set_t ours;
	pthread_attr_t attr;
	sigset_t all, before;
	pthread_t thread;

	if (runs || sched_getaffinity(0, sizeof ours, &ours) || CPU_COUNT(&ours) < 2 || sem_init(&wake, 0, 0))
		return runs;
	sigfillset(&all); /* signals are the main thread's */
	pthread_sigmask(SIG_SETMASK, &all, &before);
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	runs = !pthread_create(&thread, &attr, run, NULL);
	pthread_attr_destroy(&attr);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (runs)
		pthread_setname_np(thread, "copies");
	return runs;
}

/* copies_taken() - May the next copy be entered?  If not the caller makes it: copies_make() */
bool copies_taken(void)
{
	if (!rest_left)
		return runs;
	rest_left--;
	return false;
}

static void stalled(void)
{
	rest_left = rest;
	without_stall = 0;
	if (rest < REST_MAX)
		rest *= 2;
}

/* The thread has to get on with its copy */
static void let_it_run(void)
{
	int64_t since = 0;

	for (int looks = 0; atomic_load_explicit(&role, memory_order_relaxed); looks++) {
		if (looks < LOOKS_AND_YIELD) {
			pause_briefly();
			continue;
		}
		if (!since)
			since = wall_ns();
		sched_yield();
	}
	if (since && wall_ns() - since > STALL_NS)
		stalled();
}

/* Make the next copy, or let the thread make it */
static void help(void)
{
	if (!take_role()) {
		let_it_run();
		return;
	}
	make_next();
	give_role();
}

/* copies_add() - Have something copied, behind all that was entered before
 *
 * Both places belong to us until copies_settle().
 */
void copies_add(uint8_t *to, const uint8_t *from, uint32_t bytes)
{
	while (copies_entered - atomic_load_explicit(&copies_made, memory_order_acquire) == ENTRIES)
		help();
	ring[copies_entered % ENTRIES] = (struct entry){.to = to, .from = from, .bytes = bytes};
	atomic_store_explicit(&entered, ++copies_entered, memory_order_release);
	if (++without_stall > rest && rest > REST_MIN) {
		rest /= 2;
		without_stall = 0;
	}
	if (copies_entered % WORTH_A_WAKE == 0 && atomic_load_explicit(&asleep, memory_order_relaxed)) {
		atomic_store_explicit(&asleep, false, memory_order_relaxed);
		sem_post(&wake);
	}
}

/* copies_make() - Copy something now, behind all that was entered before */
void copies_make(uint8_t *to, const uint8_t *from, uint32_t bytes)
{
	copies_settle();
	copy_payload(to, from, bytes);
}

/* copies_wait() - Wait until all copies are made; see copies_settle() */
void copies_wait(void)
{
	while (atomic_load_explicit(&copies_made, memory_order_acquire) != copies_entered)
		help();
}
