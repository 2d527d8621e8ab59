/* Waits of threads for each other, with a limit: condition variables, semaphores, mutexes, locks, threads that end
 *
 * Theory of Operation
 *
 * The wait itself is the C library's: whoever is to wake the thread knows nothing of us.  Only its limit is emulated.  So
 * the thread waits in slices of the machine's time, and after each looks whether its limit is over (keeper.c).  Slices are
 * short, and no emulated time passes by them.  A process with one thread sleeps until its limit instead.
 */
#include "emulated.h"
#include "keeper.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/single_threaded.h>
#include <sys/syscall.h>
#include <threads.h>
#include <unistd.h>

#define SIGSET_BYTES 8 /* of the kernel's */
#define FIRST_NS 30000	 /* of the machine's time: the first slice */
#define LONGEST_NS 1000000
#define REAL(name)                                                                                                          \
	static __typeof__(&name) real;                                                                                      \
	if (!real)                                                                                                          \
	*(void **)&real = dlsym(RTLD_NEXT, #name)

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

/* @lets:	Signals that are blocked while one is let in; NULL: they are let in anyway */
static int wait_for(wait_until *wait, void *what, struct limit *l, bool alone, const sigset_t *lets)
{
	long slice = alone ? 0 : FIRST_NS;

	for (;;) {
		bool over = l->over;
		const struct timespec then = real_in(over ? 0 : slice);
		int wrong = wait(what, &then);
		if (wrong != ETIMEDOUT || over)
			return wrong;
		slice = 2 * slice < LONGEST_NS ? 2 * slice : LONGEST_NS;
		if (alone && lets)
			railbed_masked(l->due, lets);
		if (alone && (!lets || railbed_lost()))
			railbed_wait(l->due);
	}
}

/* Wait until then by an emulated clock */
static int limited_letting(wait_until *wait, void *what, clockid_t clock, const struct timespec *then, const sigset_t *lets)
{
	uint64_t left = railbed_emulated() ? clock_until(clock, then) : 0;
	bool alone = __libc_single_threaded;
	struct limit l = {.due = railbed_now(0) + left, .over = !left, .thread = (int)syscall(SYS_gettid), .lets = lets};
	int wrong;

	if (!left)
		return wait_for(wait, what, &l, true, lets);
	limit_enter(&l, !alone);
	pthread_cleanup_push(limit_leave, &l);
	wrong = wait_for(wait, what, &l, alone, lets);
	pthread_cleanup_pop(1);
	return wrong;
}

static int limited(wait_until *wait, void *what, clockid_t clock, const struct timespec *then)
{
	return limited_letting(wait, what, clock, then, NULL);
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

/* --- semaphores: a handler ends a wait for one, so signals are let in between slices alone, where that is heard of --- */
struct counted {
	sem_t *semaphore;
	sigset_t were, lets;
};

static int wait_semaphore(void *what, const struct timespec *then)
{
	const struct counted *c = what;

	REAL(sem_clockwait);
	int wrong = real(c->semaphore, CLOCK_MONOTONIC, then) ? errno : 0;
	if (wrong != ETIMEDOUT)
		return wrong;
	return syscall(SYS_ppoll, NULL, 0, &(struct timespec){0}, &c->lets, SIGSET_BYTES) < 0 ? EINTR : ETIMEDOUT;
}

static void heard(void *counted)
{
	polling_heard(&((const struct counted *)counted)->were);
}

static int limited_count(struct counted *c, clockid_t clock, const struct timespec *then)
{
	sigset_t most;
	int wrong;

	railbed_most(&most);
	pthread_sigmask(SIG_SETMASK, &most, &c->were);
	c->lets = c->were;
	sigaddset(&c->lets, SIGRTMAX); /* polling.c */
	pthread_cleanup_push(heard, c);
	wrong = limited_letting(wait_semaphore, c, clock, then, &c->lets);
	pthread_cleanup_pop(1);
	return wrong;
}

int sem_clockwait(sem_t *restrict semaphore, clockid_t clock, const struct timespec *restrict then)
{
	struct counted c = {.semaphore = semaphore};
	int wrong = is_time(then) && is_clock(clock) ? limited_count(&c, clock, then) : EINVAL;

	errno = wrong ? wrong : errno;
	return wrong ? -1 : 0;
}

int sem_timedwait(sem_t *restrict semaphore, const struct timespec *restrict then)
{
	return sem_clockwait(semaphore, CLOCK_REALTIME, then);
}

/* --- mutexes and locks.  Of a mutex that is free it does not matter whether the limit is a time --- */
static int of_mutex(void *of)
{
	return pthread_mutex_trylock(of);
}

static int of_rwlock(void *of)
{
	(void)of;
	return EBUSY;
}

#define LOCK(type, kind, call)                                                                                              \
	static int wait_##kind(void *what, const struct timespec *then)                                                     \
	{                                                                                                                   \
		REAL(pthread_##type##_clock##call);                                                                         \
		return real(what, CLOCK_MONOTONIC, then);                                                                   \
	}                                                                                                                   \
	int pthread_##type##_clock##call(pthread_##type##_t *restrict of, clockid_t clock, const struct timespec *restrict then) \
	{                                                                                                                   \
		int wrong = is_clock(clock) ? of_##type(of) : EINVAL;                                                       \
		return wrong != EBUSY ? wrong : is_time(then) ? limited(wait_##kind, of, clock, then) : EINVAL;             \
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
