/* Clocks and sleeping
 *
 * Time of day begins at a fixed date, so that what a program prints of it repeats.  Before the session is open nothing
 * happens in emulated time but that clocks are read; from then on a program's clocks go on from there with the fabric's,
 * however late in the fabric's time that is.
 */
#include "emulated.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#define EPOCH_S 1767225600 /* 2026-01-01 00:00 UTC */
#define BOOTED_S 1000	   /* ago, by then */

static _Atomic uint64_t before; /* ps that clocks had taken until the session was open */
static uint64_t opened;		/* the fabric's time then */

/* clock_begins() - The session is open */
void clock_begins(void)
{
	opened = railbed_now(0);
}

static uint64_t now(uint64_t cost)
{
	if (railbed_open())
		return before + railbed_now(cost) - opened;
	return atomic_fetch_add(&before, cost);
}

struct timespec clock_at(uint64_t ps, clockid_t id)
{
	uint64_t ns = ps / PS_PER_NS;
	time_t from = id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE || id == CLOCK_TAI ? EPOCH_S : BOOTED_S;

	return (struct timespec){from + (time_t)(ns / 1000000000), (long)(ns % 1000000000)};
}

static bool of_cpu(clockid_t id)
{
	return id == CLOCK_PROCESS_CPUTIME_ID || id == CLOCK_THREAD_CPUTIME_ID || id < 0;
}

int clock_gettime(clockid_t id, struct timespec *t)
{
	if (of_cpu(id))
		return (int)syscall(SYS_clock_gettime, id, t);
	*t = clock_at(now(READ_PS), id);
	return 0;
}

int clock_getres(clockid_t id, struct timespec *t)
{
	(void)id;
	if (t)
		*t = (struct timespec){0, 1};
	return 0;
}

int timespec_get(struct timespec *t, int base)
{
	if (base != TIME_UTC)
		return 0;
	clock_gettime(CLOCK_REALTIME, t);
	return base;
}

int gettimeofday(struct timeval *restrict t, void *restrict zone)
{
	struct timespec s;

	(void)zone;
	clock_gettime(CLOCK_REALTIME, &s);
	*t = (struct timeval){s.tv_sec, s.tv_nsec / 1000};
	return 0;
}

time_t time(time_t *t)
{
	struct timespec s;

	clock_gettime(CLOCK_REALTIME, &s);
	if (t)
		*t = s.tv_sec;
	return s.tv_sec;
}

clock_t clock(void)
{
	struct timespec s;

	clock_gettime(CLOCK_MONOTONIC, &s);
	return (clock_t)((s.tv_sec - BOOTED_S) * CLOCKS_PER_SEC + s.tv_nsec / (1000000000 / CLOCKS_PER_SEC));
}

/* How much is left (ps) when a signal has come; else 0 */
static uint64_t sleep_ps(uint64_t ps)
{
	if (!ps || !railbed_emulated())
		return 0;
	uint64_t until = railbed_now(0) + ps;
	waiting_sleep(ps);
	uint64_t is = railbed_now(0);
	return is < until ? until - is : 0;
}

#define LONGEST_S 1000000 /* of a sleep: more than any fabric lives */

/* From @from to @to; 0: that is over */
static uint64_t between(const struct timespec *from, const struct timespec *to)
{
	int64_t s = to->tv_sec - from->tv_sec;
	int64_t ns = (s < LONGEST_S ? s : LONGEST_S) * 1000000000 + to->tv_nsec - from->tv_nsec;

	return s < -LONGEST_S || ns < 0 ? 0 : (uint64_t)ns * PS_PER_NS;
}

/* clock_until() - How long it is until that time of a clock (ps); 0: it is over */
uint64_t clock_until(clockid_t id, const struct timespec *t)
{
	const struct timespec from = clock_at(now(0), id);

	return between(&from, t);
}

int clock_nanosleep(clockid_t id, int flags, const struct timespec *t, struct timespec *left)
{
	static const struct timespec from = {0};

	if (t->tv_nsec < 0 || t->tv_nsec > 999999999 || t->tv_sec < 0 || of_cpu(id))
		return EINVAL;
	uint64_t ps = sleep_ps(flags & TIMER_ABSTIME ? clock_until(id, t) : between(&from, t));
	if (ps && left && !(flags & TIMER_ABSTIME))
		*left = (struct timespec){(time_t)(ps / PS_PER_S), (long)(ps % PS_PER_S / PS_PER_NS)};
	return ps ? EINTR : 0;
}

int nanosleep(const struct timespec *t, struct timespec *left)
{
	int wrong = clock_nanosleep(CLOCK_MONOTONIC, 0, t, left);

	errno = wrong ? wrong : errno;
	return wrong ? -1 : 0;
}

unsigned int sleep(unsigned int seconds)
{
	return (unsigned)((sleep_ps(seconds * PS_PER_S) + PS_PER_S - 1) / PS_PER_S);
}

int usleep(useconds_t us)
{
	if (!sleep_ps(us * 1000 * PS_PER_NS))
		return 0;
	errno = EINTR;
	return -1;
}
