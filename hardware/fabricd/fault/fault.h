/* Injected faults: what the files of this room share (fault.c has the theory) */
#ifndef FAULT_FAULT_H
#define FAULT_FAULT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "link/impairment.h"
#include "link/port.h"
#include "transport/qp.h"

struct frame_effect;
struct nic;

enum fault_kind {
#define PRIMITIVE(kind, name, load, keys) FAULT_##kind,
#include "fault/primitives.def"
#undef PRIMITIVE
	FAULT_KINDS
};
enum frame_selection { SELECT_ALL, SELECT_SHARE, SELECT_EVERY, SELECT_FIRST, SELECT_BURST, SELECT_HASH, SELECT_METER };
enum params_of { OF_CABLE, OF_PORT, OF_SWITCH, OF_NIC, OF_CONTROL };

/* A port at whose frames a rule looks */
struct watched {
	uint64_t seen; /* frames that match */
	uint32_t place; /* in the rule's list, from 1; 0: not one of them */
	bool bad;	/* burst: the state */
};

struct frame_rule {
	const struct frame_effect *effect;
	enum frame_selection select;
	struct watched *ports; /* by their index */
	double share;	/* random, hash */
	uint64_t n;	/* every n-th, the first n */
	double to_bad, to_good, loss_bad, loss_good;
	uint64_t salt;
	double rate_bps; /* meter */
	ps_t burst;	 /* meter: how long its bucket takes to fill */
	ps_t delay, jitter;
	bool reorder;
	enum shown shown; /* a drop, to an operator */
	uint8_t dscp;
	/* which frames: those that match all of these */
	uint8_t classes;
	bool by_opcode, by_qp, by_dscp, by_src, by_dst;
	uint64_t opcodes[4];
	uint32_t src_ip, dst_ip, qp;
	uint8_t match_dscp;
	ps_t level; /* meter, which is a whole switch's: when the bucket will be full again */
};

struct generated {
	struct qp_owner owner;
	struct generated *next;
	struct fault *fault;
	struct nic *from, *to;
	struct qp *qp;
	uint64_t bytes;
	uint32_t number;
	ps_t start, end; /* end: PS_NEVER while it is under way */
	bool started, failed;
};

struct fault {
	struct fault *next;
	char id[64];
	enum fault_kind kind;
	uint64_t number; /* in order of injection, of those not healed: tells random draws apart */
	uint64_t order;	 /* of being switched on: overlays are laid in that order */
	bool operator;	 /* not a fault, but what an operator has configured: laid over all faults, whenever they come */
	ps_t at, length, every;
	bool on, healed;
	bool missed, missed_on; /* its time came when all workers had ended; whether to go on */
	ps_t since;
	uint64_t hits;
	json_t *request;
	struct frame_rule rule;
	enum params_of of;
	void *object;
	json_t *values;
	struct cable *swap[2];
	char to[16]; /* who acts */
	struct generated *flows;
};

extern const struct impairment fault_impairment;
extern const struct transports fault_transports; /* transport/qp.h */

/* fault.c */
extern const char fault_is_in[], fault_is_out[]; /* what is wrong with asking for what is so already */
const char *fault_inject(struct fabric *f, const json_t *request);
const char *fault_heal(struct fabric *f, const char *id);
void fault_event(struct fabric *f, struct fault *x, bool on);
void fault_forget_healed(struct fabric *f);
void faults_next_job(struct fabric *f);
json_t *acts_on(struct fabric *f);
bool controller_made_to_hang(const struct fabric *f);
json_t *faults_json(struct fabric *f);
json_t *fault_counts_json(struct fabric *f);
json_t *fault_flows_json(struct fabric *f, const char *id);
void faults_close(struct fabric *f);
struct fault *fault_first_on(struct fabric *f, enum fault_kind kind, uint64_t after);

/* frames.c */
const char *frames_load(struct fabric *f, struct fault *x, const json_t *request);
struct frame_fate frames_strike(struct fabric *f, const struct port *p, struct frame *fr);
void frames_switch(struct fabric *f, struct fault *x, bool on);

/* params.c */
const char *params_load(struct fabric *f, struct fault *x, const json_t *request);
void params_of_cable(struct fabric *f, const struct cable *cable, struct cable_params *params);
void params_in_force(struct fabric *f, struct fault *x);
json_t *params_json(struct fabric *f, bool meant);
const char *swap_load(struct fabric *f, struct fault *x, const json_t *request);
void swaps_in_force(struct fabric *f);

/* traffic.c */
void traffic_start(struct fabric *f, struct generated *g);
bool traffic_under_way(const struct qp *q);
const char *traffic_load(struct fabric *f, struct fault *x, const json_t *request);
void traffic_switch(struct fabric *f, struct fault *x, bool on);
json_t *traffic_json(const struct fault *x);

#endif
