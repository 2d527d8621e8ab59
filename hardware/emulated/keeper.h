/* Who lets time go on while all threads of a process wait for something else (keeper.c) */
#ifndef KEEPER_H
#define KEEPER_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

/* Of a thread that waits, at most until then */
struct limit {
	struct limit *next;
	uint64_t due;
	_Atomic bool over;
	int thread;
	const sigset_t *lets; /* if signals are blocked that it lets in: all but these */
};

void limit_enter(struct limit *l, bool keeper);
void limit_leave(void *l);
bool outside_begin(void);
void outside_end(bool begun);

#endif
