/* Timers: alarm, setitimer, timer_create, timerfd
 *
 * A timer is due at an emulated time.  No wait of the process goes beyond the first that is (session.c), and when its lock
 * is free again what is due is carried out: a signal to the process, or a count at a descriptor.  So a signal comes
 * between two calls, as if the program had been interrupted there.  Timers of CPU time are the kernel's.
 */
#include "emulated.h"
#include "lock.h"

#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define NEVER UINT64_MAX
#define TIMERS 256
#define FIRST_ID 0x7e000000ul /* of timer_create's: none of the kernel's is as large */
#define LONGEST_S 1000000ll

static struct timer {
	enum kind { FREE, INTERVAL, POSIX, DESCRIPTOR } kind;
	uint64_t due, every; /* ps; due NEVER: not armed */
	clockid_t clock;
	int fd, overrun;
	struct sigevent event;
} timers[TIMERS] = {{.kind = INTERVAL, .due = NEVER, .event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM}}};
static struct lock lock;
static _Atomic uint64_t changes;

/* timers_plan() - What is due first is another
 *
 * It is asked and said without our lock: a handler may want that while its thread has another.  If it has changed meanwhile it
 * is said anew.
 */
void timers_plan(void)
{
	uint64_t seen, first;

	changes++;
	do {
		seen = changes;
		first = limits_first();
		lock_take(&lock);
		for (int i = 0; i < TIMERS; i++)
			if (timers[i].kind && timers[i].due < first)
				first = timers[i].due;
		lock_give(&lock);
		railbed_alarm(first);
	} while (seen != changes);
}

static void *call(void *of)
{
	const struct timer *t = of;

	t->event.sigev_notify_function(t->event.sigev_value);
	return NULL;
}

static void notify(struct timer *t, uint64_t times)
{
	siginfo_t s = {.si_signo = t->event.sigev_signo, .si_code = SI_TIMER, .si_value = t->event.sigev_value};
	pthread_t thread;

	t->overrun = (int)(times - 1);
	if (t->kind == DESCRIPTOR) {
		(void)!syscall(SYS_write, t->fd, &times, sizeof times);
		return;
	}
	if (t->kind == INTERVAL)
		s.si_code = SI_KERNEL;
	switch (t->event.sigev_notify) {
	case SIGEV_SIGNAL:
		if (t->kind == INTERVAL)
			syscall(SYS_kill, getpid(), s.si_signo);
		else
			syscall(SYS_rt_sigqueueinfo, getpid(), s.si_signo, &s);
		break;
	case SIGEV_THREAD_ID:
		syscall(SYS_rt_tgsigqueueinfo, getpid(), t->event._sigev_un._tid, s.si_signo, &s);
		break;
	case SIGEV_THREAD:
		if (!pthread_create(&thread, NULL, call, t))
			pthread_detach(thread);
		break;
	default: break;
	}
}

/* timers_due() - Time has come to the first that is due */
void timers_due(uint64_t now)
{
	static __thread bool within; /* a handler of signals may read clocks */

	if (within)
		return;
	within = true;
	if (limits_due(now))
		timers_plan();
	for (int i = 0; i < TIMERS; i++) {
		lock_take(&lock);
		struct timer *t = &timers[i];
		uint64_t times = 0;
		if (t->kind && t->due <= now) {
			times = t->every ? 1 + (now - t->due) / t->every : 1;
			t->due = t->every ? t->due + times * t->every : NEVER;
		}
		lock_give(&lock);
		if (times) {
			timers_plan();
			notify(t, times);
		}
	}
	within = false;
}

static uint64_t ps_of(time_t s, long ns)
{
	return (uint64_t)(s < LONGEST_S ? s : LONGEST_S) * PS_PER_S + (uint64_t)ns * PS_PER_NS;
}

static struct timespec spec_of(uint64_t ps)
{
	return (struct timespec){(time_t)(ps / PS_PER_S), (long)(ps % PS_PER_S / PS_PER_NS)};
}

static bool is_wrong(const struct timespec *t)
{
	return t->tv_sec < 0 || t->tv_nsec < 0 || t->tv_nsec > 999999999;
}

static struct itimerspec left_of(const struct timer *t)
{
	uint64_t now = railbed_now(0);

	return (struct itimerspec){.it_interval = spec_of(t->every),
				   .it_value = spec_of(t->due == NEVER ? 0 : t->due > now ? t->due - now : PS_PER_NS)};
}

static void arm(struct timer *t, uint64_t from_now, uint64_t every)
{
	uint64_t due = railbed_now(0) + from_now;

	lock_take(&lock);
	t->due = due;
	t->every = every;
	lock_give(&lock);
	timers_plan();
}

static void disarm(struct timer *t)
{
	lock_take(&lock);
	t->due = NEVER;
	t->every = 0;
	lock_give(&lock);
	timers_plan();
}

static int set(struct timer *t, int absolute, const struct itimerspec *to, struct itimerspec *was)
{
	if (is_wrong(&to->it_value) || is_wrong(&to->it_interval)) {
		errno = EINVAL;
		return -1;
	}
	if (was)
		*was = left_of(t);
	if (!to->it_value.tv_sec && !to->it_value.tv_nsec) {
		disarm(t);
		return 0;
	}
	uint64_t in = ps_of(to->it_value.tv_sec, to->it_value.tv_nsec);
	if (absolute) {
		struct timespec now;
		clock_gettime(t->clock, &now);
		uint64_t is = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
		uint64_t then = (uint64_t)to->it_value.tv_sec * 1000000000 + (uint64_t)to->it_value.tv_nsec;
		in = then <= is ? 0 : then - is < LONGEST_S * 1000000000ull ? (then - is) * PS_PER_NS : ps_of(LONGEST_S, 0);
	}
	arm(t, in, ps_of(to->it_interval.tv_sec, to->it_interval.tv_nsec));
	return 0;
}

static struct timer *new_timer(enum kind kind, clockid_t clock)
{
	struct timer *t = NULL;

	lock_take(&lock);
	for (int i = 1; i < TIMERS && !t; i++)
		if (!timers[i].kind)
			t = &timers[i];
	if (t)
		*t = (struct timer){.kind = kind, .due = NEVER, .clock = clock, .fd = -1};
	lock_give(&lock);
	return t;
}

/* --- alarm, setitimer --- */
int setitimer(__itimer_which_t which, const struct itimerval *restrict to, struct itimerval *restrict was)
{
	struct itimerspec old;

	if (which != ITIMER_REAL || !railbed_emulated())
		return (int)syscall(SYS_setitimer, which, to, was);
	const struct itimerspec new = {{to->it_interval.tv_sec, to->it_interval.tv_usec * 1000}, {to->it_value.tv_sec, to->it_value.tv_usec * 1000}};
	if (set(&timers[0], 0, &new, &old))
		return -1;
	if (was)
		*was = (struct itimerval){{old.it_interval.tv_sec, old.it_interval.tv_nsec / 1000}, {old.it_value.tv_sec, old.it_value.tv_nsec / 1000}};
	return 0;
}

int getitimer(__itimer_which_t which, struct itimerval *is)
{
	if (which != ITIMER_REAL || !railbed_emulated())
		return (int)syscall(SYS_getitimer, which, is);
	struct itimerspec s = left_of(&timers[0]);
	*is = (struct itimerval){{s.it_interval.tv_sec, s.it_interval.tv_nsec / 1000}, {s.it_value.tv_sec, s.it_value.tv_nsec / 1000}};
	return 0;
}

unsigned int alarm(unsigned int seconds)
{
	struct itimerval to = {.it_value.tv_sec = seconds}, was = {0};

	setitimer(ITIMER_REAL, &to, &was);
	if (!was.it_value.tv_sec && was.it_value.tv_usec)
		return 1;
	return (unsigned)(was.it_value.tv_sec + (was.it_value.tv_usec >= 500000));
}

useconds_t ualarm(useconds_t us, useconds_t every)
{
	struct itimerval to = {{every / 1000000, every % 1000000}, {us / 1000000, us % 1000000}}, was = {0};

	setitimer(ITIMER_REAL, &to, &was);
	return (useconds_t)(was.it_value.tv_sec * 1000000 + was.it_value.tv_usec);
}

/* --- timer_create --- */
#define REAL(name)                                                                                                          \
	static __typeof__(&name) real;                                                                                      \
	if (!real)                                                                                                          \
	*(void **)&real = dlsym(RTLD_NEXT, #name)

static struct timer *timer_of(timer_t id)
{
	size_t i = (size_t)id - FIRST_ID;

	return i < TIMERS && timers[i].kind == POSIX ? &timers[i] : NULL;
}

int timer_create(clockid_t clock, struct sigevent *restrict event, timer_t *restrict id)
{
	bool of_cpu = clock == CLOCK_PROCESS_CPUTIME_ID || clock == CLOCK_THREAD_CPUTIME_ID || clock < 0;

	REAL(timer_create);
	if (of_cpu || !railbed_emulated())
		return real(clock, event, id);
	struct timer *t = new_timer(POSIX, clock);
	if (!t) {
		errno = EAGAIN;
		return -1;
	}
	*id = (timer_t)(FIRST_ID + (size_t)(t - timers));
	t->event = (struct sigevent){.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM, .sigev_value.sival_ptr = *id};
	if (event)
		t->event = *event;
	return 0;
}

int timer_settime(timer_t id, int flags, const struct itimerspec *restrict to, struct itimerspec *restrict was)
{
	struct timer *t = timer_of(id);

	REAL(timer_settime);
	return t ? set(t, flags & TIMER_ABSTIME, to, was) : real(id, flags, to, was);
}

int timer_gettime(timer_t id, struct itimerspec *is)
{
	struct timer *t = timer_of(id);

	REAL(timer_gettime);
	if (!t)
		return real(id, is);
	*is = left_of(t);
	return 0;
}

int timer_getoverrun(timer_t id)
{
	struct timer *t = timer_of(id);

	REAL(timer_getoverrun);
	return t ? t->overrun : real(id);
}

int timer_delete(timer_t id)
{
	struct timer *t = timer_of(id);

	REAL(timer_delete);
	if (!t)
		return real(id);
	disarm(t);
	t->kind = FREE;
	return 0;
}

/* --- timerfd: an eventfd that counts how often it was due --- */
static struct timer *timer_at(int fd)
{
	for (int i = 1; i < TIMERS; i++)
		if (timers[i].kind == DESCRIPTOR && timers[i].fd == fd)
			return &timers[i];
	return NULL;
}

/* timers_readable() - Has it been due since it was read? */
bool timers_readable(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return syscall(SYS_poll, &p, 1, 0) == 1;
}

int timerfd_create(clockid_t clock, int flags)
{
	if (!railbed_emulated())
		return (int)syscall(SYS_timerfd_create, clock, flags);
	int fd = eventfd(0, (flags & TFD_NONBLOCK ? EFD_NONBLOCK : 0) | (flags & TFD_CLOEXEC ? EFD_CLOEXEC : 0));
	struct timer *t = fd < 0 ? NULL : new_timer(DESCRIPTOR, clock);
	if (t) {
		t->fd = fd;
	} else if (fd >= 0) {
		syscall(SYS_close, fd);
		errno = EMFILE;
	}
	return t ? fd : -1;
}

int timerfd_settime(int fd, int flags, const struct itimerspec *to, struct itimerspec *was)
{
	struct timer *t = timer_at(fd);
	uint64_t count;

	if (!t)
		return (int)syscall(SYS_timerfd_settime, fd, flags, to, was);
	if (timers_readable(fd))
		(void)!syscall(SYS_read, fd, &count, sizeof count);
	return set(t, flags & TFD_TIMER_ABSTIME, to, was);
}

int timerfd_gettime(int fd, struct itimerspec *is)
{
	struct timer *t = timer_at(fd);

	if (!t)
		return (int)syscall(SYS_timerfd_gettime, fd, is);
	*is = left_of(t);
	return 0;
}

/* timers_descriptor() - Is it a timer's? */
bool timers_descriptor(int fd)
{
	return timer_at(fd);
}

/* timers_forget() - A descriptor is closed */
void timers_forget(int fd)
{
	struct timer *t = timer_at(fd);

	if (t) {
		disarm(t);
		t->kind = FREE;
	}
}

/* A child has none of its parent's */
static void in_child(void)
{
	lock = (struct lock){0};
	timers[0].due = NEVER;
	for (int i = 1; i < TIMERS; i++)
		timers[i].kind = FREE;
	timers_plan();
}

__attribute__((constructor)) static void begin(void)
{
	pthread_atfork(NULL, NULL, in_child);
}
