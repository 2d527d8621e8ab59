/* A rank's turns in C: schedules are carried out without its Python, from one record to the next
 *
 * Theory of Operation
 *
 * workloads/collectives/execution.py says what carrying out a schedule is.  Python makes a schedule plain data (plan.h)
 * and lends the memory of what is under way; here the same is done with it, command by command, so that no figure can
 * tell which of the two has done it.  lanes.c takes lanes from step to step, memory.c copies and reduces, table.c knows
 * whose a record is, and session.c speaks with fabricd: it waits, hands records to their owners, and returns to Python
 * when one is not of a schedule, when a schedule has ended, or when Python has not been asked for some time.
 *
 * Python is trusted as far as its own process goes; what fabricd says is looked at before it is used.
 */
#ifndef TURNS_H
#define TURNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "plan.h"
#include "wire.h"

#define PACKET_MOST 65536 /* of commands */
#define PACKET_HEAD 8
#define RECORDS_HEAD (PACKET_HEAD + sizeof(struct wire_records))

struct head {
	uint16_t op, length;
	uint32_t zero;
};

/* As fabricd lays it out (worker/commands.def) */
struct post_send {
	uint32_t qp;
	uint8_t opcode, flags;
	uint16_t zero;
	uint64_t wr_id;
	uint32_t lkey, rkey;
	uint64_t local, remote, length;
	uint32_t imm, zero2;
};
#define POST_SEND_BYTES (sizeof(struct head) + sizeof(struct post_send))

/* What something has waited for */
enum waited { REDUCED, BUSY, BEGUN, SEEN };

/* What is called in Python */
struct asked {
	void (*combine)(uint32_t number, uint32_t into, uint64_t at, uint32_t from, uint64_t from_at, uint64_t bytes);
	void (*say)(const uint8_t *commands, size_t bytes); /* where there is no socket */
	void (*alive)(void);				    /* likewise: a sign of life, during long work */
};

/* Whose a record is: messages of a queue pair that have the same high bits, or a computation with that number */
struct entry {
	struct execution *execution; /* NULL: free */
	uint64_t key;
	uint32_t index; /* of the line, or of what has waited */
	uint32_t what;	/* it has waited for */
};

struct table {
	struct entry *entries;
	uint32_t room, used;
};

struct row {
	uint32_t *items;
	uint32_t first, count, room;
};

/* A record that a lane expects: by a computation's number, or by queue pair and immediate */
struct expected {
	uint64_t key;
	uint32_t kind, zero;
};

/* What a lane expects, and has answered beforehand: the same chain is fabricd's */
#define AHEAD_MOST 16
struct ahead {
	uint32_t number, first, count;
	struct expected of[AHEAD_MOST];
};

struct stopped {
	struct execution *execution;
	uint32_t lane;
};

/* A session, as Python has it */
struct turns {
	int32_t fd; /* -1: `asked` speaks */
	uint32_t said; /* bytes in `out` */
	uint8_t *out, *in;
	uint64_t in_bytes;
	uint64_t wake_ps;
	uint64_t now, host, sent; /* of the last answer */
	int64_t spoke_ns; /* when something was sent last */
	struct asked asked;
	uint32_t at, end; /* records in `in` that are still to be handed out */
	uint32_t got;	  /* bytes of a packet that Python is to look at */
	uint32_t ended;	  /* whose schedule has ended: its number */
	uint64_t ended_ps;
	uint32_t odd_kind, odd_imm; /* what was out of turn */
	uint32_t waits; /* it has said so, and there is no answer yet */
	int32_t patience_ms; /* of a wait, where signals are Python's (-1: they are another thread's) */
	uint32_t taken;	      /* whose the last record was: its number */
	uint32_t numbers;
	uint64_t token; /* the last number of a computation, of those that all count together */
	struct table messages, computations;
	struct execution **by_number;
	struct row going; /* lanes that may go on */
	uint32_t foresees; /* may something be said beforehand? */
	uint32_t quiet;	   /* what is done has been said already */
	uint32_t chains, stopped_count, stopped_room;
	struct row free_chains;
	struct stopped *stopped; /* lanes that have come as far as they can since the rank has waited */
};

/* What a call ends with */
enum turned {
	TURNED_ON,	/* all was handed out */
	TURNED_ENDED,	/* a schedule has ended, and there may be more to hand out */
	TURNED_PACKET,	/* Python is to look at a packet of `got` bytes: not all of it is ours, or it is no answer */
	TURNED_LOOK,	/* nothing has come to an end, but it is time to look up, or a signal has come */
	TURNED_LIMIT,	/* the time that was waited for */
	TURNED_ODD,	/* a record out of turn */
	TURNED_CLOSED,	/* what was said has not gone out */
};
#define NOT_OURS (-1)

/* What Python calls (workloads/parts/turns.py) */
extern const uint32_t turns_layout[];
bool turns_done(const struct execution *x);
bool turns_start(struct turns *t, struct execution *x);
void turns_reset(struct execution *x);
void turns_free(struct execution *x);
uint32_t turns_add(struct turns *t, struct execution *x);
void turns_remove(struct turns *t, struct execution *x);
void turns_close(struct turns *t);
int turns_take(struct turns *t, uint32_t kind, uint64_t wr_id, uint64_t time_ps, uint32_t qp, uint32_t imm);
int turns_go_on(struct turns *t, uint64_t until, int64_t for_ns);

void say(struct turns *t, uint16_t op, const void *body, size_t bytes);
size_t put_command(uint8_t *to, uint16_t op, const void *body, size_t bytes);
const struct entry *owner(const struct turns *t, const struct wire_record *r);
int hand_out(struct turns *t, const struct entry *e, const struct wire_record *r);
struct post_send posted(const struct execution *x, const struct lane_plan *lane, const struct step *s, uint32_t number);
void ahead_stopped(struct turns *t, struct execution *x, uint32_t lane);
void ahead_look(struct turns *t);
void ahead_told(const struct entry *e, const struct wire_record *r);
bool ahead_answered(struct turns *t, size_t *bytes);
void ahead_removed(struct turns *t, struct execution *x);
void say_progress(struct turns *t);
bool lanes_take(struct turns *t, struct execution *x, uint32_t line, bool sent, uint64_t wr_id, uint32_t imm);
void lanes_computed(struct turns *t, struct execution *x, uint32_t what, uint32_t index);
void combine(struct turns *t, struct execution *x, uint32_t into, uint64_t at, struct place from, uint64_t bytes);
void copy(struct execution *x, uint32_t into, uint64_t at, struct place from, uint64_t bytes);
const struct entry *table_find(const struct table *table, uint64_t key);
void table_add(struct table *table, struct entry e);
void table_take(struct table *table, uint64_t key);

/* message_key() - Of messages of a queue pair with these high bits */
static inline uint64_t message_key(uint32_t qp, uint32_t number)
{
	return (uint64_t)qp << 32 | number;
}

void row_add(struct row *row, uint32_t item);
uint32_t row_take(struct row *row);

#endif
