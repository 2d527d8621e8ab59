/* Letting go, off the event loop
 *
 * Theory of Operation
 *
 * The last close() of a descriptor can take for ever: of a TCP socket with
 * SO_LINGER and unsent data, say, or of a packet socket, which waits for all
 * processors.  Workers can send us any descriptor, and leave more of them in
 * the queue of their own socket, where closing that finds them.  So what came
 * from a worker is closed by a thread of its own, and with it the memory that
 * a worker had registered, which takes long for being large.
 *
 * When that thread is stuck, the list grows.  Each session can add only so
 * many; those who merely connect are let wait when there are CLOSER_MAX.
 * A process that ends lingers nowhere, so nothing waits for the thread then.
 */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/closer.h"

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
} closer = {.lock = PTHREAD_MUTEX_INITIALIZER, .more = PTHREAD_COND_INITIALIZER};

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
	pthread_mutex_lock(&closer.lock);
	for (;;) {
		while (!closer.count)
			pthread_cond_wait(&closer.more, &closer.lock);
		struct left x = closer.list[--closer.count];
		closer.busy = 1;
		pthread_mutex_unlock(&closer.lock);
		let_go(&x);
		pthread_mutex_lock(&closer.lock);
		closer.busy = 0;
	}
	return NULL;
}

/* closer_start() - Start the thread; without it all is closed where it is found
 *
 * Return: whether it runs
 */
bool closer_start(void)
{
	pthread_attr_t attr;
	pthread_t thread;
	sigset_t all, before;

	sigfillset(&all); /* signals are the main thread's */
	pthread_sigmask(SIG_SETMASK, &all, &before);
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	closer.runs = !pthread_create(&thread, &attr, run, NULL);
	pthread_attr_destroy(&attr);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return closer.runs;
}

static void later(const struct left *x)
{
	if (!closer.runs) {
		let_go(x);
		return;
	}
	pthread_mutex_lock(&closer.lock);
	if (closer.count == closer.room) {
		size_t room = closer.room ? 2 * closer.room : 64;
		struct left *grown = realloc(closer.list, room * sizeof *grown);
		if (!grown)
			abort();
		closer.list = grown;
		closer.room = room;
	}
	closer.list[closer.count++] = *x;
	pthread_cond_signal(&closer.more);
	pthread_mutex_unlock(&closer.lock);
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

/* closer_full() - Has so much piled up that nobody should be let in just to be sent away? */
bool closer_full(void)
{
	pthread_mutex_lock(&closer.lock);
	bool full = closer.count + closer.busy >= CLOSER_MAX;
	pthread_mutex_unlock(&closer.lock);
	return full;
}
