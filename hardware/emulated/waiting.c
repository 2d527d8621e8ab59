/* poll, select and epoll, of which a management network's socket or a completion channel may be one of the descriptors
 *
 * Each looks at all its descriptors as they are at its emulated time, and if none is ready goes on to the next time at
 * which one may be.  What happens to the NIC meanwhile is taken in, so a completion channel becomes readable.  Before the
 * program has a session they are the kernel's.
 *
 * A signal is let in by the kernel's own ppoll, with the mask that the program has given or has, and at no other time: so
 * whoever waits hears of each that its handler has had, as the man pages say.
 */
#include "emulated.h"
#include "network.h"

#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FOREVER UINT64_MAX
#define PS_PER_MS 1000000000ull
#define SIGSET_BYTES 8 /* of the kernel's */

static bool ours(void)
{
	return railbed_open() && railbed_emulated();
}

static bool is_epoll(int fd);
static bool epoll_is_ready(int epoll, uint64_t *next);

/* What is ready of them now, of ours by the network's time; @next: when to look again */
static int look(struct pollfd *p, nfds_t n, uint64_t *next)
{
	uint64_t now = railbed_now(0), when;
	int ready = 0;

	*next = n ? now + STEP_PS : FOREVER;
	for (nfds_t i = 0; i < n; i++) {
		struct pollfd one = {.fd = p[i].fd, .events = p[i].events};
		p[i].revents = 0;
		if (p[i].fd < 0)
			continue;
		if (network_ours(p[i].fd)) {
			one.revents = network_events(p[i].fd, now, &when);
			*next = when < *next ? when : *next;
		} else if (is_epoll(p[i].fd)) {
			one.revents = epoll_is_ready(p[i].fd, &when) ? POLLIN : 0;
			*next = when < *next ? when : *next;
		} else {
			syscall(SYS_poll, &one, 1, 0);
		}
		p[i].revents = one.revents & (p[i].events | POLLERR | POLLHUP | POLLNVAL);
		ready += p[i].revents != 0;
	}
	return ready;
}

struct signals {
	sigset_t were, during; /* that are blocked */
};

static void signals_begin(struct signals *s, const sigset_t *mask)
{
	sigset_t all;

	railbed_most(&all);
	pthread_sigmask(SIG_SETMASK, &all, &s->were);
	s->during = mask ? *mask : s->were;
	sigaddset(&s->during, SIGRTMAX); /* polling.c */
}

static void signals_end(const struct signals *s)
{
	int was = errno;

	pthread_sigmask(SIG_SETMASK, &s->were, NULL);
	errno = was;
}

/* Has a handler run? */
static bool signals_came(const struct signals *s)
{
	return syscall(SYS_ppoll, NULL, 0, &(struct timespec){0}, &s->during, SIGSET_BYTES) < 0;
}

typedef int looks(void *at, uint64_t *next);

/* Until one is ready, a signal has come, or time is over: what the call returns */
static int wait_for(looks *look, void *at, uint64_t ps, const sigset_t *mask)
{
	uint64_t end = ps == FOREVER ? FOREVER : railbed_now(0) + ps, next;
	struct signals s;
	int ready;

	signals_begin(&s, mask);
	for (;;) {
		ready = look(at, &next);
		if (ready)
			break;
		if (railbed_lost() || signals_came(&s)) {
			errno = EINTR;
			ready = -1;
			break;
		}
		if (end != FOREVER && railbed_now(0) >= end)
			break;
		railbed_masked(next < end ? next : end, &s.during);
	}
	signals_end(&s);
	return ready;
}

struct polled {
	struct pollfd *p;
	nfds_t n;
};

static int look_at(void *at, uint64_t *next)
{
	const struct polled *all = at;

	return look(all->p, all->n, next);
}

static int wait_for_some(struct pollfd *p, nfds_t n, uint64_t ps, const sigset_t *mask)
{
	return wait_for(look_at, &(struct polled){p, n}, ps, mask);
}

static int look_at_nothing(void *nothing, uint64_t *next)
{
	(void)nothing;
	*next = FOREVER;
	return 0;
}

/* waiting_sleep() - Until a signal has come, or time is over */
void waiting_sleep(uint64_t ps)
{
	wait_for(look_at_nothing, NULL, ps, NULL);
}

int poll(struct pollfd *p, nfds_t n, int ms)
{
	if (!ours())
		return (int)syscall(SYS_poll, p, n, ms);
	return wait_for_some(p, n, ms < 0 ? FOREVER : (uint64_t)ms * PS_PER_MS, NULL);
}

static uint64_t ps_of(const struct timespec *t)
{
	return t ? (uint64_t)t->tv_sec * PS_PER_S + (uint64_t)t->tv_nsec * PS_PER_NS : FOREVER;
}

int ppoll(struct pollfd *p, nfds_t n, const struct timespec *t, const sigset_t *mask)
{
	if (!ours())
		return (int)syscall(SYS_ppoll, p, n, t, mask, SIGSET_BYTES);
	return wait_for_some(p, n, ps_of(t), mask);
}

static int select_(int n, fd_set *in, fd_set *out, fd_set *wrong, uint64_t ps, const sigset_t *mask)
{
	struct pollfd p[FD_SETSIZE];
	nfds_t count = 0;
	int ready = 0;

	for (int fd = 0; fd < n && fd < FD_SETSIZE; fd++) {
		short events = (short)((in && FD_ISSET(fd, in) ? POLLIN : 0) | (out && FD_ISSET(fd, out) ? POLLOUT : 0) |
				       (wrong && FD_ISSET(fd, wrong) ? POLLPRI : 0));
		if (events)
			p[count++] = (struct pollfd){.fd = fd, .events = events};
	}
	if (wait_for_some(p, count, ps, mask) < 0)
		return -1;
	fd_set *sets[] = {in, out, wrong};
	for (int i = 0; i < 3; i++)
		if (sets[i])
			FD_ZERO(sets[i]);
	for (nfds_t i = 0; i < count; i++) {
		static const short means[] = {POLLIN | POLLHUP | POLLERR, POLLOUT | POLLERR, POLLPRI};
		static const short asked[] = {POLLIN, POLLOUT, POLLPRI};
		for (int k = 0; k < 3; k++)
			if (sets[k] && p[i].events & asked[k] && p[i].revents & means[k]) {
				FD_SET(p[i].fd, sets[k]);
				ready++;
			}
	}
	return ready;
}

int select(int n, fd_set *restrict in, fd_set *restrict out, fd_set *restrict wrong, struct timeval *restrict t)
{
	if (!ours())
		return (int)syscall(SYS_select, n, in, out, wrong, t);
	return select_(n, in, out, wrong, t ? (uint64_t)t->tv_sec * PS_PER_S + (uint64_t)t->tv_usec * 1000 * PS_PER_NS : FOREVER, NULL);
}

int pselect(int n, fd_set *restrict in, fd_set *restrict out, fd_set *restrict wrong, const struct timespec *restrict t,
	    const sigset_t *restrict mask)
{
	static int (*real)(int, fd_set *, fd_set *, fd_set *, const struct timespec *, const sigset_t *);

	if (ours())
		return select_(n, in, out, wrong, ps_of(t), mask);
	if (!real)
		*(void **)&real = dlsym(RTLD_NEXT, "pselect");
	return real(n, in, out, wrong, t, mask);
}

/* --- epoll: whose sockets of ours, and epolls with such, the kernel cannot look at as we do --- */
#define WATCHED 1024
#define DESCRIPTORS 4096
static struct watched {
	int epoll, fd;
	struct epoll_event event;
	uint32_t told; /* with EPOLLET: what was said and has not changed since */
} watched[WATCHED]; /* fd 0: free; standard input is none of ours */
static bool epolls[DESCRIPTORS];

int epoll_create1(int flags)
{
	int fd = (int)syscall(SYS_epoll_create1, flags);

	if (fd >= 0 && fd < DESCRIPTORS)
		epolls[fd] = true;
	return fd;
}

int epoll_create(int size)
{
	errno = EINVAL;
	return size > 0 ? epoll_create1(0) : -1;
}

static bool is_epoll(int fd)
{
	return fd >= 0 && fd < DESCRIPTORS && epolls[fd];
}

/* waiting_forget() - A descriptor is closed */
void waiting_forget(int fd)
{
	if (is_epoll(fd))
		epolls[fd] = false;
}

static struct watched *watched_at(int epoll, int fd)
{
	for (int i = 0; i < WATCHED; i++)
		if (watched[i].epoll == epoll && watched[i].fd == fd)
			return &watched[i];
	return NULL;
}

/* Under network_lock: two threads do not take the same place */
static int set_watched(int epoll, int op, int fd, const struct epoll_event *event)
{
	struct watched *w = watched_at(epoll, fd);
	if (op == EPOLL_CTL_ADD && !w)
		w = watched_at(0, 0);
	else if (!w || op == EPOLL_CTL_ADD) {
		errno = w ? EEXIST : ENOENT;
		return -1;
	}
	if (!w) {
		errno = ENOSPC;
		return -1;
	}
	*w = op == EPOLL_CTL_DEL ? (struct watched){0} : (struct watched){epoll, fd, *event, 0};
	return 0;
}

int epoll_ctl(int epoll, int op, int fd, struct epoll_event *event)
{
	if (!network_ours(fd) && !is_epoll(fd))
		return (int)syscall(SYS_epoll_ctl, epoll, op, fd, event);
	lock_take(&network_lock);
	int wrong = set_watched(epoll, op, fd, event);
	lock_give(&network_lock);
	return wrong;
}

/* What is so of a watched one, as far as it is asked for; @looks: nobody is told */
static uint32_t state_of(struct watched *w, uint64_t now, bool looks, uint64_t *next)
{
	uint32_t is;

	if (network_ours(w->fd))
		is = (uint32_t)network_events(w->fd, now, next);
	else
		is = epoll_is_ready(w->fd, next) ? EPOLLIN : 0;
	is &= w->event.events | (w->event.events ? EPOLLERR | EPOLLHUP : 0);
	if (!(w->event.events & EPOLLET) || looks)
		return is;
	uint32_t new = is & (~w->told | EPOLLIN);
	w->told = is;
	return new;
}

/* Ours that are ready, then the kernel's; @next as of look().  Without @events: is any? */
static int look_at_epoll(int epoll, struct epoll_event *events, int most, uint64_t *next)
{
	uint64_t now = railbed_now(0), when;
	int n = 0;

	*next = now + STEP_PS;
	for (int i = 0; i < WATCHED && n < most; i++) {
		struct watched *w = &watched[i];
		if (!w->fd || w->epoll != epoll)
			continue;
		if (!network_ours(w->fd) && !is_epoll(w->fd)) {
			*w = (struct watched){0}; /* closed: the kernel would forget it, too */
			continue;
		}
		uint32_t is = state_of(w, now, !events, &when);
		*next = when < *next ? when : *next;
		if (is && events)
			events[n] = (struct epoll_event){.events = is, .data = w->event.data};
		if (is && events && w->event.events & EPOLLONESHOT)
			w->event.events = 0;
		n += is != 0;
	}
	if (n < most) {
		struct pollfd p = {.fd = epoll, .events = POLLIN};
		int more = events ? (int)KERNEL(SYS_epoll_pwait, epoll, events + n, most - n, 0, NULL, SIGSET_BYTES) :
				    (int)syscall(SYS_poll, &p, 1, 0);
		n += more > 0 ? more : 0;
	}
	return n;
}

static bool epoll_is_ready(int epoll, uint64_t *next)
{
	return look_at_epoll(epoll, NULL, 1, next);
}

struct waited {
	int epoll, most;
	struct epoll_event *events;
};

static int look_at_waited(void *at, uint64_t *next)
{
	const struct waited *w = at;

	return look_at_epoll(w->epoll, w->events, w->most, next);
}

static int wait_epoll(struct waited *w, uint64_t ps, const sigset_t *mask)
{
	return wait_for(look_at_waited, w, ps, mask);
}

int epoll_pwait(int epoll, struct epoll_event *events, int most, int ms, const sigset_t *mask)
{
	if (!ours() || most < 1)
		return (int)syscall(SYS_epoll_pwait, epoll, events, most, ms, mask, SIGSET_BYTES);
	return wait_epoll(&(struct waited){epoll, most, events}, ms < 0 ? FOREVER : (uint64_t)ms * PS_PER_MS, mask);
}

int epoll_pwait2(int epoll, struct epoll_event *events, int most, const struct timespec *t, const sigset_t *mask)
{
	if (!ours() || most < 1)
		return (int)syscall(SYS_epoll_pwait2, epoll, events, most, t, mask, SIGSET_BYTES);
	return wait_epoll(&(struct waited){epoll, most, events}, ps_of(t), mask);
}

int epoll_wait(int epoll, struct epoll_event *events, int most, int ms)
{
	return epoll_pwait(epoll, events, most, ms, NULL);
}
