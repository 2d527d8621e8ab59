/* What the process sleeps on: one epoll set over TAPs, sockets and clients. */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>

#include "engine/fabric.h"
#include "engine/watch.h"

/* pointers to the objects are aligned to 8: the kind rides in the low bits */
_Static_assert(WATCH_READER < 8, "kinds of watches must fit in three bits");

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
