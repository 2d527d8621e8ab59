/* What the process sleeps on: one epoll set over TAPs, sockets and clients. */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>

#include "fabric.h"

/* pointers to the objects are aligned to 8: the kind rides in the low bits */
_Static_assert(WATCH_CONTROL < 8, "kinds of watches must fit in three bits");

static uint64_t tag(enum watch what, void *object)
{
	return (uint64_t)(uintptr_t)object | what;
}

bool watch_add(struct fabric *f, int fd, enum watch what, void *object)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.u64 = tag(what, object)};

	return !epoll_ctl(f->epoll_fd, EPOLL_CTL_ADD, fd, &ev) || config_fail(f, "epoll: %s", strerror(errno));
}

void watch_set(struct fabric *f, int fd, enum watch what, void *object, uint32_t events)
{
	struct epoll_event ev = {.events = events, .data.u64 = tag(what, object)};

	epoll_ctl(f->epoll_fd, EPOLL_CTL_MOD, fd, &ev);
}

/* watch_remove() - Hear no more of a descriptor that is not closed yet */
void watch_remove(struct fabric *f, int fd)
{
	epoll_ctl(f->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
}

static void dispatch(struct fabric *f, const struct epoll_event *ev)
{
	void *object = (void *)(uintptr_t)(ev->data.u64 & ~7ull);

	switch ((enum watch)(ev->data.u64 & 7)) {
	case WATCH_TAP: ovs_readable(f, object); break;
	case WATCH_FENCE: ovs_fence_readable(f); break;
	case WATCH_NETDEV: nic_netdev_readable(f, object); break;
	case WATCH_WORKER_LISTEN: worker_accept(f, object); break;
	case WATCH_WORKER: worker_readable(f, object); break;
	case WATCH_CONTROL_LISTEN: control_accept(f); break;
	case WATCH_CONTROL:
		if (ev->events & EPOLLOUT)
			control_writable(f, object);
		if (ev->events & (EPOLLIN | EPOLLHUP | EPOLLERR))
			control_readable(f, object);
		break;
	}
}

/* watch_dispatch() - Sleep until something is heard, and handle it
 * @timeout_ns:	Sleep no longer
 *
 * Return: how many descriptors were ready
 */
int watch_dispatch(struct fabric *f, int64_t timeout_ns)
{
	struct epoll_event ev[128];
	struct timespec ts = {.tv_sec = timeout_ns / 1000000000, .tv_nsec = timeout_ns % 1000000000};
	int n = epoll_pwait2(f->epoll_fd, ev, 128, &ts, NULL);

	if (f->clock.mode == CLOCK_REAL && n > 0) {
		fabric_step(f); /* what was due before it was heard */
		ps_t now = clock_real_now(f);
		if (now > f->clock.now && (!f->heap.n || f->heap.ev[0].t >= now))
			f->clock.now = now;
	}
	for (int i = 0; i < n; i++)
		dispatch(f, &ev[i]);
	control_sweep(f);
	return n;
}
