/* Closing in a thread of its own, off the event loop
 *
 * Theory of Operation
 *
 * The last close() of a descriptor may block for ever: of a TCP socket with
 * SO_LINGER and unsent data, say, or of a packet socket, which waits for all
 * processors.  A worker can send us any descriptor.  Some may still be in the
 * queue of its socket, and closing the socket closes those too.  So a thread of
 * its own closes whatever came from workers.  It also unmaps the memory that
 * they had registered, because large regions take long.
 *
 * When the thread is stuck, its list grows.  A session can add only so many
 * entries.  With CLOSE_LATER_MAX of them, new connections have to wait.  When the
 * process ends, nothing waits for the thread.
 */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/close_later.h"

struct left {
	int fd; /* or -1: memory */
	void *base;
	size_t bytes;
};

static struct {
	pthread_mutex_t lock;
	pthread_cond_t more;
	struct left *list;
	size_t count, room, busy;
	bool runs;
} pending = {.lock = PTHREAD_MUTEX_INITIALIZER, .more = PTHREAD_COND_INITIALIZER};

static void let_go(const struct left *x)
{
	/* lingers no longer, if nobody sets it again meanwhile; of anything but a socket it fails */
	static const struct linger at_once = {.l_onoff = 1, .l_linger = 0};

	if (x->fd < 0) {
		munmap(x->base, x->bytes);
		return;
	}
	setsockopt(x->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
	close(x->fd);
}

static void *run(void *unused)
{
	(void)unused;
	pthread_mutex_lock(&pending.lock);
	for (;;) {
		while (!pending.count)
			pthread_cond_wait(&pending.more, &pending.lock);
		struct left x = pending.list[--pending.count];
		pending.busy = 1;
		pthread_mutex_unlock(&pending.lock);
		let_go(&x);
		pthread_mutex_lock(&pending.lock);
		pending.busy = 0;
	}
	return NULL;
}

/* close_later_start() - Start the thread; without it all is closed where it is found
 *
 * Return: whether it runs
 */
bool close_later_start(void)
{
	pthread_attr_t attr;
	pthread_t thread;
	sigset_t all, before;

	sigfillset(&all); /* signals are the main thread's */
	pthread_sigmask(SIG_SETMASK, &all, &before);
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pending.runs = !pthread_create(&thread, &attr, run, NULL);
	pthread_attr_destroy(&attr);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return pending.runs;
}

static void later(const struct left *x)
{
	if (!pending.runs) {
		let_go(x);
		return;
	}
	pthread_mutex_lock(&pending.lock);
	if (pending.count == pending.room) {
		size_t room = pending.room ? 2 * pending.room : 64;
		struct left *grown = realloc(pending.list, room * sizeof *grown);
		if (!grown)
			abort();
		pending.list = grown;
		pending.room = room;
	}
	pending.list[pending.count++] = *x;
	pthread_cond_signal(&pending.more);
	pthread_mutex_unlock(&pending.lock);
}

/* close_later() - Close a descriptor that came from a worker, or a worker's socket; it is ours no longer */
void close_later(int fd)
{
	later(&(struct left){.fd = fd});
}

/* unmap_later() - Unmap a worker's memory; nobody looks at it any more */
void unmap_later(void *base, size_t bytes)
{
	later(&(struct left){.fd = -1, .base = base, .bytes = bytes});
}

/* close_later_full() - Has so much piled up that nobody should be let in just to be sent away? */
bool close_later_full(void)
{
	pthread_mutex_lock(&pending.lock);
	bool full = pending.count + pending.busy >= CLOSE_LATER_MAX;
	pthread_mutex_unlock(&pending.lock);
	return full;
}
