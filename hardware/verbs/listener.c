/* The listener: a thread that takes in what happens while a program looks at a channel's descriptor by calls of the kernel's
 *
 * Theory of Operation
 *
 * A program may wait for a completion with poll or epoll alone, and ask for it when its channel can be read.  With the
 * virtual clock these calls are ours.  With the real one they are the kernel's, and nobody would hear fabricd meanwhile: so
 * there the listener waits as other threads do, for as long as any queue is to tell its channel of a completion.
 */
#include "railbed.h"

#include <signal.h>

static unsigned armed; /* so many queues are to tell it */
static struct bell more;
static bool listens;

static void *listen(void *unused)
{
	for (;;) {
		session_lock();
		while (!armed || session.fd < 0)
			lock_wait(&session.lock, &more);
		session_wait(1, NEVER);
		session_unlock();
	}
	return unused;
}

static void begin(void)
{
	pthread_t thread;
	sigset_t most, were;

	railbed_most(&most);
	pthread_sigmask(SIG_SETMASK, &most, &were);
	listens = !pthread_create(&thread, NULL, listen, NULL);
	pthread_sigmask(SIG_SETMASK, &were, NULL);
	if (listens)
		pthread_detach(thread);
}

/* listener_armed() - One queue more is to tell its channel, or has told it; under the lock */
void listener_armed(bool yes)
{
	if (!session_open() || !session.real)
		return;
	armed += yes ? 1 : -(armed > 0);
	if (yes && !listens)
		begin();
	if (yes)
		bell_ring(&more, 1);
}

/* listener_child() - A child has no such thread */
void listener_child(void)
{
	armed = 0;
	more = (struct bell){0};
	listens = false;
}
