/* Waits of threads for each other, with a limit: condition variables, semaphores, mutexes, locks, threads that end
 *
 * Theory of Operation
 *
 * The wait itself is the C library's: whoever is to wake the thread knows nothing of us.  Only its limit is emulated.  So
 * the thread waits in slices of the machine's time, and after each looks whether its limit is over.  Slices are short, and
 * no emulated time passes by them.
 *
 * Limits are due as timers are (timers.c): no wait of the process goes beyond the first.  A process whose threads all wait
 * like this has nobody that lets time go on.  So there is one thread more, the keeper, that waits for the first limit as
 * soon as no other runs (threads.c).  A process with one thread needs none: it sleeps until its limit.
 */
#include "emulated.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <sys/single_threaded.h>
#include <sys/syscall.h>
#include <threads.h>
#include <unistd.h>

#define NEVER UINT64_MAX
#define FIRST_NS 30000	 /* of the machine's time: the first slice */
#define LONGEST_NS 1000000
#define LOOKS 100	 /* at a thread whose limit is over and that does not go on: another has what it needs for that */
#define STACK 65536
#define REAL(name)                                                                                                          \
	static __typeof__(&name) real;                                                                                      \
	if (!real)                                                                                                          \
	*(void **)&real = dlsym(RTLD_NEXT, #name)

static struct limit {
	struct limit *next;
	uint64_t due;
	_Atomic bool over;
	unsigned looks;
} *limits;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
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
	pthread_mutex_lock(&lock);
	uint64_t due = first();
	pthread_mutex_unlock(&lock);
	return due;
}

/* limits_due() - Time has come so far: is any limit over by that? */
bool limits_due(uint64_t now)
{
	bool any = false;

	pthread_mutex_lock(&lock);
	for (struct limit *l = limits; l; l = l->next)
		if (!l->over && l->due <= now)
			any = l->over = true;
	pthread_mutex_unlock(&lock);
	return any;
}

/* limits_wake() - Is there a thread whose limit is over, and that has not gone on yet? */
bool limits_wake(void)
{
	bool any = false;

	pthread_mutex_lock(&lock);
	for (struct limit *l = limits; l; l = l->next)
		any = any || (l->over && l->looks++ < LOOKS);
	pthread_mutex_unlock(&lock);
	return any;
}

static void *keep(void *unused)
{
	(void)unused;
	for (;;) {
		pthread_mutex_lock(&lock);
		while (first() == NEVER)
			pthread_cond_wait(&changed, &lock);
		uint64_t due = first();
		pthread_mutex_unlock(&lock);
		if (railbed_lost())
			limits_due(NEVER - 1);
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
	sigfillset(&all);
	pthread_attr_init(&a);
	pthread_attr_setstacksize(&a, STACK);
	pthread_attr_setdetachstate(&a, PTHREAD_CREATE_DETACHED);
	pthread_sigmask(SIG_SETMASK, &all, &was);
	kept = !pthread_create(&keeper, &a, keep, NULL);
	pthread_sigmask(SIG_SETMASK, &was, NULL);
	pthread_attr_destroy(&a);
}

static void enter(struct limit *l, bool alone)
{
	pthread_mutex_lock(&lock);
	l->next = limits;
	limits = l;
	if (!alone)
		have_keeper();
	pthread_cond_signal(&changed);
	pthread_mutex_unlock(&lock);
	timers_plan();
}

static void leave(void *of)
{
	struct limit **at = &limits;

	pthread_mutex_lock(&lock);
	while (*at && *at != of)
		at = &(*at)->next;
	if (*at)
		*at = (*at)->next;
	pthread_mutex_unlock(&lock);
	timers_plan();
}

/* A time of the machine's, so far from now */
static struct timespec real_in(long ns)
{
	struct timespec t;

	syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &t);
	t.tv_nsec += ns;
	t.tv_sec += t.tv_nsec / 1000000000;
	t.tv_nsec %= 1000000000;
	return t;
}

/* Waits until then by the machine's monotonic clock; ETIMEDOUT if that is over */
typedef int wait_until(void *what, const struct timespec *then);

static int wait_for(wait_until *wait, void *what, struct limit *l, bool alone)
{
	long slice = alone ? 0 : FIRST_NS;

	for (;;) {
		bool over = l->over;
		const struct timespec then = real_in(over ? 0 : slice);
		int wrong = wait(what, &then);
		if (wrong != ETIMEDOUT || over)
			return wrong;
		slice = 2 * slice < LONGEST_NS ? 2 * slice : LONGEST_NS;
		if (alone)
			railbed_wait(l->due);
	}
}

/* Wait until then by an emulated clock */
static int limited(wait_until *wait, void *what, clockid_t clock, const struct timespec *then)
{
	uint64_t left = railbed_emulated() ? clock_until(clock, then) : 0;
	bool alone = __libc_single_threaded;
	struct limit l = {.due = railbed_now(0) + left, .over = !left};
	int wrong;

	if (!left)
		return wait_for(wait, what, &l, true);
	enter(&l, alone);
	pthread_cleanup_push(leave, &l);
	wrong = wait_for(wait, what, &l, alone);
	pthread_cleanup_pop(1);
	return wrong;
}

static bool is_time(const struct timespec *t)
{
	return t && t->tv_nsec >= 0 && t->tv_nsec < 1000000000;
}

static bool is_clock(clockid_t clock)
{
	return clock == CLOCK_REALTIME || clock == CLOCK_MONOTONIC;
}

/* --- condition variables --- */
struct condition {
	pthread_cond_t *condition;
	pthread_mutex_t *mutex;
};

static int wait_condition(void *what, const struct timespec *then)
{
	const struct condition *c = what;

	REAL(pthread_cond_clockwait);
	return real(c->condition, c->mutex, CLOCK_MONOTONIC, then);
}

int pthread_cond_clockwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex, clockid_t clock,
			   const struct timespec *restrict then)
{
	struct condition c = {condition, mutex};

	return is_time(then) && is_clock(clock) ? limited(wait_condition, &c, clock, then) : EINVAL;
}

#define OF_MONOTONIC 2 /* in what the C library keeps of a condition variable: the clock that it was made for */

int pthread_cond_timedwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex, const struct timespec *restrict then)
{
	bool monotonic = condition->__data.__wrefs & OF_MONOTONIC;

	return pthread_cond_clockwait(condition, mutex, monotonic ? CLOCK_MONOTONIC : CLOCK_REALTIME, then);
}

/* --- semaphores --- */
static int wait_semaphore(void *what, const struct timespec *then)
{
	REAL(sem_clockwait);
	return real(what, CLOCK_MONOTONIC, then) ? errno : 0;
}

int sem_clockwait(sem_t *restrict semaphore, clockid_t clock, const struct timespec *restrict then)
{
	int wrong = is_time(then) && is_clock(clock) ? limited(wait_semaphore, semaphore, clock, then) : EINVAL;

	errno = wrong ? wrong : errno;
	return wrong ? -1 : 0;
}

int sem_timedwait(sem_t *restrict semaphore, const struct timespec *restrict then)
{
	return sem_clockwait(semaphore, CLOCK_REALTIME, then);
}

/* --- mutexes and locks --- */
#define LOCK(type, kind, call)                                                                                              \
	static int wait_##kind(void *what, const struct timespec *then)                                                     \
	{                                                                                                                   \
		REAL(pthread_##type##_clock##call);                                                                         \
		return real(what, CLOCK_MONOTONIC, then);                                                                   \
	}                                                                                                                   \
	int pthread_##type##_clock##call(pthread_##type##_t *restrict of, clockid_t clock, const struct timespec *restrict then) \
	{                                                                                                                   \
		return is_time(then) && is_clock(clock) ? limited(wait_##kind, of, clock, then) : EINVAL;             \
	}                                                                                                                   \
	int pthread_##type##_timed##call(pthread_##type##_t *restrict of, const struct timespec *restrict then)             \
	{                                                                                                                   \
		return pthread_##type##_clock##call(of, CLOCK_REALTIME, then);                                              \
	}
LOCK(mutex, mutex, lock)
LOCK(rwlock, reader, rdlock)
LOCK(rwlock, writer, wrlock)
#undef LOCK

/* --- threads that end --- */
struct joined {
	pthread_t thread;
	void **result;
};

static int wait_end(void *what, const struct timespec *then)
{
	const struct joined *j = what;

	REAL(pthread_clockjoin_np);
	return real(j->thread, j->result, CLOCK_MONOTONIC, then);
}

int pthread_clockjoin_np(pthread_t thread, void **result, clockid_t clock, const struct timespec *then)
{
	struct joined j = {thread, result};

	return is_time(then) && is_clock(clock) ? limited(wait_end, &j, clock, then) : EINVAL;
}

int pthread_timedjoin_np(pthread_t thread, void **result, const struct timespec *then)
{
	return pthread_clockjoin_np(thread, result, CLOCK_REALTIME, then);
}

/* --- the same by C's own names; what they are of is the same to the C library --- */
static int of_c(int wrong)
{
	return !wrong ? thrd_success : wrong == ETIMEDOUT ? thrd_timedout : thrd_error;
}

int cnd_timedwait(cnd_t *restrict condition, mtx_t *restrict mutex, const struct timespec *restrict then)
{
	return of_c(pthread_cond_clockwait((pthread_cond_t *)condition, (pthread_mutex_t *)mutex, CLOCK_REALTIME, then));
}

int mtx_timedlock(mtx_t *restrict mutex, const struct timespec *restrict then)
{
	return of_c(pthread_mutex_clocklock((pthread_mutex_t *)mutex, CLOCK_REALTIME, then));
}

/* A child has one thread, which waits for nobody */
static void in_child(void)
{
	lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	changed = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
	limits = NULL;
	kept = false;
}

__attribute__((constructor)) static void begin(void)
{
	pthread_atfork(NULL, NULL, in_child);
}
