/* Closing in a thread of its own, off the event loop
 *
 * Theory of Operation
 *
 * The last close() of a descriptor may block for ever: of a TCP socket with
 * SO_LINGER and unsent data, say, or of a packet socket, which waits for all
 * processors.  A worker can send us any descriptor.  Some may still be in the
 * queue of its socket, and closing the socket closes those too.  So a thread of
 * its own closes whatever came from workers.  Another one unmaps the memory that
 * they had registered, because large regions take long.  It never blocks for good:
 * what is charged to us for one worker's memory another must not be able to keep.
 *
 * When the thread that closes is stuck, its list grows.  A session can add only so
 * many entries.  With CLOSE_LATER_MAX of them, new connections have to wait.  When
 * the process ends, nothing waits for the threads.
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

/* What a thread has to do yet */
struct queue {
	pthread_mutex_t lock;
	pthread_cond_t more;
	struct left *list;
	size_t count, room, busy;
	bool runs;
};

static struct queue to_close = {.lock = PTHREAD_MUTEX_INITIALIZER, .more = PTHREAD_COND_INITIALIZER};
static struct queue to_unmap = {.lock = PTHREAD_MUTEX_INITIALIZER, .more = PTHREAD_COND_INITIALIZER};

static void let_go(const struct left *x)
{
	/* a socket lingers no longer, unless its other holder sets that again; of all else the call fails */
	static const struct linger at_once = {.l_onoff = 1, .l_linger = 0};

	if (x->fd < 0) {
		munmap(x->base, x->bytes);
		return;
	}
	setsockopt(x->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
	close(x->fd);
}

static void *run(void *queue)
{
	struct queue *q = queue;

	pthread_mutex_lock(&q->lock);
	for (;;) {
		while (!q->count)
			pthread_cond_wait(&q->more, &q->lock);
		struct left x = q->list[--q->count];
		q->busy = 1;
		pthread_mutex_unlock(&q->lock);
		let_go(&x);
		pthread_mutex_lock(&q->lock);
		q->busy = 0;
	}
	return NULL;
}

/* close_later_start() - Start the threads; without them all is closed and unmapped where it is found
 *
 * Return: whether they run
 */
bool close_later_start(void)
{
	pthread_attr_t attr;
	sigset_t all, before;
	pthread_t thread;

	sigfillset(&all); /* signals are the main thread's */
	pthread_sigmask(SIG_SETMASK, &all, &before);
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	to_close.runs = !pthread_create(&thread, &attr, run, &to_close);
	to_unmap.runs = !pthread_create(&thread, &attr, run, &to_unmap);
	pthread_attr_destroy(&attr);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return to_close.runs && to_unmap.runs;
}

static void later(struct queue *q, const struct left *x)
{
	if (!q->runs) {
		let_go(x);
		return;
	}
	pthread_mutex_lock(&q->lock);
	if (q->count == q->room) {
		size_t room = q->room ? 2 * q->room : 64;
		struct left *grown = realloc(q->list, room * sizeof *grown);
		if (!grown)
			abort();
		q->list = grown;
		q->room = room;
	}
	q->list[q->count++] = *x;
	pthread_cond_signal(&q->more);
	pthread_mutex_unlock(&q->lock);
}

/* close_later() - Close a descriptor that came from a worker, or a worker's socket; it is ours no longer */
void close_later(int fd)
{
	later(&to_close, &(struct left){.fd = fd});
}

/* unmap_later() - Unmap a worker's memory; nobody looks at it any more */
void unmap_later(void *base, size_t bytes)
{
	later(&to_unmap, &(struct left){.fd = -1, .base = base, .bytes = bytes});
}

/* close_later_full() - Is so much waiting to be closed that no session should be accepted only to be refused? */
bool close_later_full(void)
{
	pthread_mutex_lock(&to_close.lock);
	bool full = to_close.count + to_close.busy >= CLOSE_LATER_MAX;
	pthread_mutex_unlock(&to_close.lock);
	return full;
}
