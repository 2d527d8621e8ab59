/* How long somebody is waited for, and by what it is judged (patience.c) */
#ifndef PATIENCE_H
#define PATIENCE_H

#include <stdbool.h>
#include <stdint.h>

#define PATIENCE_LOOK_NS 250000000LL

struct patience {
	int pid;		   /* of the process at the other end, 0: not known */
	char state;		   /* as /proc has it: R, S, D, T .., or '?' */
	int64_t heard_ns;	   /* wall time of its last word, or of what it is to answer */
	int64_t looked_ns;	   /* of the last look at it */
	int64_t spent_ns;	   /* of our patience */
	int64_t stopped_ns;	   /* for so long every look has found it stopped */
	uint64_t queued_ns, cpu;   /* at the last look: waiting for a CPU, and ticks of CPU time */
};

void patience_of(struct patience *p, int socket);
void patience_begin(struct patience *p);
void patience_heard(struct patience *p, int64_t at_ns);
bool patience_gone(const struct patience *p);
char patience_state(const struct patience *p);
bool patience_look(struct patience *p, int64_t limit_ns, bool may_stop, char *why, unsigned room);

#endif
