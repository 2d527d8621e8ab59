/* A schedule as Python hands it over, and where an execution of it stands: the same fields in workloads/parts/turns.py */
#ifndef PLAN_H
#define PLAN_H

#include <stdbool.h>
#include <stdint.h>

#define NUMBER_BITS 14 /* of an immediate: a message's number in its schedule */
#define REGIONS 3      /* vector, staging, output */
#define NO_TIME (-1)
#define ON_HOST (UINT32_MAX - 1) /* instead of a stream: the host reduces */
#define NO_STREAM UINT32_MAX

enum step_kind { STEP_SEND, STEP_RECV, STEP_COPY, STEP_WORK, STEP_WAIT };

/* Bytes, all of them */
struct step {
	uint32_t kind;
	uint32_t other;	 /* SEND, RECV: the line; WAIT: the lane */
	uint32_t region; /* SEND: of which; RECV, COPY: into which */
	uint32_t source; /* COPY: of which */
	uint64_t at;	 /* in the region */
	uint64_t from;	 /* COPY: in the source */
	uint64_t bytes;
	uint64_t message; /* SEND: bytes as they are sent; WAIT: how many steps of the lane */
	int64_t ps;	  /* RECV, COPY: what a reduction takes, or NO_TIME; WORK: what it takes */
	uint32_t reduce, zero;
};

struct place {
	uint64_t at;
	uint32_t region, zero;
};

struct lane_plan {
	uint32_t first, count; /* of its steps */
	int64_t window;	       /* -1: none */
	int64_t begin_ps;      /* NO_TIME: at once */
	uint32_t per_peer, buffered, clocked, zero;
};

/* One direction each way of a connection */
struct line_plan {
	uint32_t own, own_count; /* where its messages land here */
	uint32_t there, there_count; /* where ours land there */
	uint32_t copies;	     /* where a buffered lane copies ours */
	int32_t sender, receiver;    /* lanes, or -1 */
	uint32_t zero;
	int64_t later_ps; /* after a message has come its lane sees it (NO_TIME: at once) */
};

struct plan {
	const struct step *steps;
	const struct place *places;
	const uint64_t *copies;
	const struct lane_plan *lanes;
	const struct line_plan *lines;
	uint32_t step_count, lane_count, line_count, width;
};

struct waiting {
	uint32_t until, lane;
};

struct lane {
	uint32_t at, under_way, reducing;
	uint32_t outbox, outbox_last; /* steps that wait for the window: the first and the last + 1, 0: none */
	uint32_t stream;	      /* on which it reduces, or ON_HOST */
	struct place pending; /* what is being reduced */
	struct waiting *waiting; /* lanes, until so many of our steps are done */
	uint32_t waiting_count, waiting_room;
	struct ahead *ahead; /* what is said beforehand to what comes next (ahead.c); NULL: nothing yet */
	uint64_t computing;  /* number of the reduction under way + 1, or 0 */
	uint32_t combined;   /* and it is made already */
	uint32_t stopped;    /* it stands among those that have come as far as they can */
};

/* Receives of a connection that are posted ahead (workloads/parts/receives.py) */
struct receives {
	uint32_t qp, key;
	uint64_t at;
	uint32_t depth, posted, bound, zero;
};

struct line {
	uint32_t qp;
	uint32_t keys[REGIONS];
	uint64_t at[REGIONS]; /* where the peer's regions begin */
	uint32_t sent, copied, arrived, seen, taken, under_way, acknowledged;
	uint32_t outbox, outbox_last, zero;
	uint64_t *early; /* a bit for each message of theirs that has come before others */
	struct receives *receives; /* NULL: all were posted before */
};

struct execution {
	const struct plan *plan;
	struct lane *lanes;
	struct line *lines;
	uint32_t *next; /* of each step in an outbox: the one behind it + 1 */
	uint8_t *memory[REGIONS];
	uint64_t at[REGIONS]; /* where they begin in what is registered */
	uint32_t keys[REGIONS];
	uint32_t first;	 /* immediate of the first message */
	uint32_t number; /* among those of the session */
	uint32_t running;
	uint32_t together; /* it counts its computations together with all of the session */
	uint32_t foresees; /* what its lanes will say hangs on nothing but what comes for each */
	uint32_t zero;
	uint64_t waits;	   /* else: times that its clocks have waited */
	void (*add)(void *ours, const void *theirs, size_t elements); /* NULL: Python reduces */
};

#endif
