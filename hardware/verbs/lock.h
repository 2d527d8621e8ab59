/* A lock that handlers of signals may take whatever they have interrupted, and a bell to wait at while it is free
 *
 * Theory of Operation
 *
 * Clocks may be read and children be waited for in a handler (signal-safety(7)), and its thread may hold the lock, or be
 * about to.  A mutex of the C library says who holds it a few instructions after that is so, and a handler in between waits
 * for its own thread for ever.  Here both are one store.  A handler that comes between that and what the thread does next
 * has the lock, too, and leaves it to its thread.
 *
 * Who holds it is told apart by pthread_self(), which a child has of its parent.
 */
#ifndef LOCK_H
#define LOCK_H

#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

/* So often it has rung, and so many wait for that */
struct bell {
	_Atomic uint32_t rung, waiting;
};

struct lock {
	_Atomic uintptr_t holder; /* 0: nobody */
	struct bell given;
	volatile unsigned depth; /* of who holds it, and */
	volatile bool lent;	 /* whether it is a handler that has it of its thread */
};

/* How a thread had it that has left it for a while */
struct had {
	unsigned depth;
	bool lent;
};

static inline void bell_wait(struct bell *b, uint32_t rung)
{
	b->waiting++;
	syscall(SYS_futex, &b->rung, FUTEX_WAIT_PRIVATE, rung, NULL);
	b->waiting--;
}

static inline void bell_ring(struct bell *b, int most)
{
	b->rung++;
	if (b->waiting)
		syscall(SYS_futex, &b->rung, FUTEX_WAKE_PRIVATE, most);
}

static inline bool lock_ours(const struct lock *l)
{
	return l->holder == (uintptr_t)pthread_self();
}

/* lock_enter() - As it had it when it left it */
static inline void lock_enter(struct lock *l, struct had had)
{
	while (!lock_ours(l)) {
		uint32_t rung = l->given.rung;
		uintptr_t nobody = 0;
		if (!atomic_compare_exchange_strong(&l->holder, &nobody, (uintptr_t)pthread_self()) && !lock_ours(l) && l->holder)
			bell_wait(&l->given, rung);
	}
	l->depth = had.depth;
	l->lent = had.lent;
}

/* lock_leave() - Whatever it had of it */
static inline struct had lock_leave(struct lock *l)
{
	struct had had = {l->depth, l->lent};

	l->lent = false;
	l->depth = 0;
	l->holder = 0;
	bell_ring(&l->given, 1);
	return had;
}

static inline void lock_take(struct lock *l)
{
	bool ours = lock_ours(l), lends = ours && !l->depth;

	if (!ours)
		lock_enter(l, (struct had){0});
	l->depth++;
	if (lends)
		l->lent = true;
}

static inline void lock_give(struct lock *l)
{
	if (l->depth > 1) {
		l->depth--;
		return;
	}
	if (!l->lent) {
		lock_leave(l);
		return;
	}
	l->lent = false;
	l->depth = 0;
}

/* lock_wait() - Until somebody rings; the lock is free meanwhile */
static inline void lock_wait(struct lock *l, struct bell *b)
{
	uint32_t rung = b->rung;
	struct had had = lock_leave(l);

	bell_wait(b, rung);
	lock_enter(l, had);
}

#endif
