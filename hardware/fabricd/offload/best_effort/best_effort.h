/* Best-effort aggregation: what the rank's end and the server's end share (best_effort.c has the theory) */
#ifndef BEST_EFFORT_H
#define BEST_EFFORT_H

#include "offload/offload.h"
#include "offload/requests.h"

#define OVERTAKEN 3 /* sums of later blocks that tell that a block's is missing */

enum lane_state { LANE_IDLE, LANE_CONVERTING, LANE_READY, LANE_WAITING };

struct block_lane {
	enum lane_state state;
	uint32_t number, again; /* again: how often its contribution has been sent again */
	bool silent;		/* for there was silence */
	/* while it waits: which of the rank's sends were its first and its last, when that was, its neighbours in line */
	uint64_t first_as, sent_as;
	ps_t sent_at;
	struct block_lane *older, *newer;
};

/* Blocks that wait for their sums, in the order of sending, and which sends the newest sums were of */
struct line {
	struct block_lane *oldest, *newest;
	uint64_t heard[OVERTAKEN];
};

/* Which slot each lane of a job uses (slots.c) */
struct lane_slots {
	uint32_t job, slots, used; /* used: slots that some lane has */
	uint16_t *of;		   /* by lane */
	uint32_t *lanes;	   /* how many, by slot */
	uint64_t moves;
};

struct best_effort {
	uint32_t slots, elements, next_ip, server_ip, group_ip, retry, shared; /* shared: slots of a pool */
	struct server *server; /* of the first member; else NULL */
	ps_t timeout, convert_tx_free, convert_rx_free, visible;
	double convert_bps;
	struct requests requests;
	uint32_t answers; /* answers: sums in a row that came to this rank alone */
	bool working;
	/* of the request at the head: number of its first packet, its packets and those sent, how many come before the
	 * blocks, blocks in all and not yet here */
	uint32_t first, lead;
	uint64_t packets, sent, blocks, left;
	/* What waits for sums (overdue.c), sent once and sent again; contributions sent in all, and until the last silence;
	 * how many silences without a sum, when the next one is over, when that is looked at */
	struct line line[2];
	uint64_t sends, silent_before, answered; /* answered: the newest send that was answered to this rank alone */
	uint64_t expected; /* expected: of the request's numbers, all before that are here */
	/* the shortest time that a sum has taken, among so many and among a window of them before */
	ps_t shortest[2];
	uint32_t timed;
	uint32_t silences;
	bool past, alone; /* the last silence ended past the accelerators; the server adds up alone */
	ps_t deadline, alarm;
	/* below the threshold the window grows with each sum; counted: sums since it has grown; recover: marks on sums
	 * before this number are about a window halved already, or another way; before: the
	 * window, or threshold, when the server began to add up alone */
	uint32_t window, threshold, counted, flying, recover, before;
	uint32_t *queue, queue_head, queued; /* lanes that are ready to be sent */
	int16_t *exponent;		     /* of blocks, by block mod lead */
	uint16_t *slot;			     /* of lanes, in the pools, or NO_SLOT */
	struct block_lane lane[];
};

/* The sum of a block at the parameter server */
struct server_entry {
	uint32_t number;
	bool used, complete, answered, queued;
	bool announce;	      /* the sum is to go to all */
	bool past, alone;     /* something in it came past the accelerators; the server adds up alone */
	uint64_t seen, asked; /* bits of ranks: in the sum, and those to be told once more */
	uint16_t count, flags, slot, next_slot; /* next_slot: of the lane's next block */
	int16_t exponent, next;
	int32_t *sum;
};

struct server {
	uint32_t window, elements, group_ip;
	double reduce_bps;
	uint64_t all;
	ps_t free; /* when the host is done with what has come */
	/* whether the job has accelerators; blocks in a row that they did nothing for; whether the server adds up alone
	 * since then, how many blocks it has added up since one was tried with a slot, the lanes that try (alone.c) */
	bool accelerators, alone;
	uint32_t missed, untried;
	bool *tries;
	struct lane_slots *lanes;
	int32_t *sums;
	uint32_t *queue, queue_head, queued; /* entries with something to send */
	struct server_entry entry[];	     /* two of each lane: the last use and the one before */
};

/* A sum, or part of one */
struct partial {
	uint32_t number;
	uint64_t ranks;
	uint16_t count, flags, slot, next_slot;
	int16_t exponent, next;
	const uint8_t *payload;
};

#define NO_SLOT UINT16_MAX /* of a lane's next block: it goes to the server at once */

struct lane_slots *lane_slots_new(uint32_t job, uint32_t lanes, uint32_t slots);
uint16_t lane_slots_move(struct lane_slots *t, uint32_t lane);
void lane_slots_free(struct lane_slots *t);

struct server *server_new(const struct group *g, uint32_t window, uint32_t elements, double reduce_bps, uint32_t group_ip,
			  struct lane_slots *lanes);
struct partial server_partial(const struct server_entry *e);
void server_free(struct server *s);
bool server_merge(struct fabric *f, struct member *m, struct server *s, const struct partial *part, ps_t t);
bool server_due(const struct server *s, uint32_t number);
const struct server_entry *server_sum(const struct server *s, uint32_t number);
uint64_t server_all(const struct server *s);
uint64_t server_missing(const struct server *s, uint32_t number);
void server_answer(struct fabric *f, struct member *m, struct server *s, uint32_t number);
uint32_t server_build(struct fabric *f, struct member *m, struct server *s, struct frame *fr);

uint32_t best_effort_frame(struct fabric *f, const struct member *m, uint32_t to, uint8_t opcode,
			   const struct partial *part, struct frame *fr);

void best_effort_finish(struct fabric *f, struct member *m);
void best_effort_added_up(struct fabric *f, struct member *m, uint32_t number);
bool best_effort_receive(struct fabric *f, struct member *m, const struct roce_packet *pkt, struct frame *fr);
extern const struct tx_ops best_effort_tx;
void best_effort_ready(struct fabric *f, struct member *m, uint32_t lane);
bool best_effort_is_block(const struct best_effort *b, uint32_t number, uint64_t *block);
void best_effort_converted(struct fabric *f, struct member *m, struct block_lane *l);
void best_effort_pump(struct fabric *f, struct member *m);

/* alone.c */
uint16_t server_next_slot(struct fabric *f, struct member *m, struct server *s, const struct server_entry *e);

/* overdue.c */
void overdue_sent(struct fabric *f, struct member *m, struct block_lane *l);
void overdue_over(struct fabric *f, struct member *m, struct block_lane *l, bool alone);
void overdue_alone(struct fabric *f, struct member *m);
void overdue_listened(struct fabric *f, struct member *m);

/* What a member sets for itself, besides the end of a conversion: with a time; with a block's number */
#define TIMER (1ull << 63)
#define SERVER_EVENT (1ull << 62)

#define EXPONENT_UNKNOWN INT16_MIN


#endif
