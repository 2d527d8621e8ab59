/* Congestion control of a queue pair: what a control is, and how its queue pair calls it (congestion.c).
 *
 * A control sets a rate (pacing) and a window (bytes under way) and learns of
 * what it sends, of acknowledgements and of notifications.  Timers are not
 * events: whoever touches a queue pair first lets its control catch up with the
 * time that has passed (cc_catch_up), in the order in which its timers ran out.
 */
#ifndef TRANSPORT_CONGESTION_H
#define TRANSPORT_CONGESTION_H

#include <stdbool.h>
#include <stdint.h>

#include "base/registry.h"
#include "base/units.h"
#include "nic/params.h"
#include "wire/telemetry.h"

struct demand;
struct fabric;
struct frame;
struct qp;
struct roce_packet;

/* How a packet was found to be lost */
enum cc_loss { CC_LOSS_NAK, CC_LOSS_TIMEOUT, CC_LOSS_TRIMMED, CC_LOSS_TRIMMED_LAST_HOP };

struct cc_ack {
	uint64_t bytes, packets; /* newly known to have come, in order or not */
	uint64_t acked;		 /* packets up to which all is acknowledged (qp_all_done) */
	ps_t rtt;		 /* 0: not known */
	bool full;		 /* of a packet as long as the MTU */
	uint32_t switches;	 /* on the way, by the TTL */
	const struct telemetry *t;
};

/* What a receiver that gives credit knows of a sender, in bytes: a packet has come, or something was granted */
struct cc_arrival {
	double came;  /* with the packet; 0: it was granted something, or asks */
	bool asks;    /* it waits, and has heard nothing for long */
	double wants; /* that the sender would like to have, beyond what it was granted; below 0: it has more than that */
	double owed;  /* by the claim before */
	double again; /* of what it wants, for what was trimmed */
	double under_way; /* behind what has come: it is on its way, or may be sent (in order, and sent again ones not counted) */
	double rest;  /* that the sender needs for all it has (credit by messages: for its message), beyond what it was granted */
};

/* And what follows for its turns (cc/puller.c) */
struct cc_claim {
	double owed, rank; /* so many bytes; the least rank first */
	bool stays;	   /* it keeps its place while nothing is owed */
};

/* What every control has; what is a control's own stands behind its queue pair (cc_own) */
struct cc_state {
	double rate, line_rate; /* rate == line_rate: not paced */
	double window;		/* of payload under way; 0: no limit */
	ps_t rate_timer;	/* when the rate grows by itself; PS_NEVER: it does not */
	uint64_t window_end;	/* number of the packet that ends the round trip under way (qp_all_left) */
	uint64_t asked;		/* behind the last that has left and asks to be acknowledged */
};

struct cc_algorithm {
	const char *name;
	const char *params[CC_PARAMS]; /* keys of those of its own in the configuration, from CC_OWN on */
	size_t state_bytes; /* of its own, zeroed whenever it starts */
	bool telemetry; /* acknowledgements bring back time and marks */
	bool rounds;	/* acts once a round trip: the packet that ends one asks to be acknowledged */
	bool fills_window; /* a packet may go while less than the window is under way */
	bool stamped;	/* with what the switches on the way stamp, CC_HOPS of them */
	bool answers_marks; /* the receiver acknowledges a marked packet at once */
	bool by_message; /* credit goes by messages: each brings its first CC_INITIAL bytes */
	bool speculates; /* who has had nothing to send has these bytes again; otherwise only who begins */
	/* all of them may be NULL */
	void (*start)(struct fabric *f, struct qp *q);
	void (*stop)(struct qp *q); /* gives back what its state holds */
	void (*catch_up)(struct fabric *f, struct qp *q);
	void (*sent)(struct fabric *f, struct qp *q, uint32_t bytes);
	void (*acked)(struct fabric *f, struct qp *q, const struct cc_ack *ack);
	bool (*notified)(struct fabric *f, struct qp *q); /* whether it was heeded */
	/* so many packets are found to be lost (go-back-N: one, whatever is behind it); the rate does not grow by that */
	void (*lost)(struct fabric *f, struct qp *q, enum cc_loss how, uint32_t packets);
	/* the receiver answers CE with notifications, two of them at least so far apart */
	ps_t (*cnp_gap)(const struct fabric *f, const struct qp *q);
	/* packets go on credit only (credit.h).  At the receiver, by the control that the peer sends by: a packet has come, or a
	 * request; what its sender is owed by that.  At the sender: it was granted so much */
	void (*arrived)(struct fabric *f, struct qp *q, const struct demand *d, uint32_t bytes, bool request);
	void (*claims)(struct fabric *f, struct qp *q, const struct cc_arrival *a, struct cc_claim *claim);
	void (*granted)(struct fabric *f, struct qp *q, uint32_t bytes);
	struct cc_algorithm *next; /* of those that were added */
};

/* A control is one file, which ends with CC_CONTROL(what it defines) */
REGISTRY(struct cc_algorithm, cc_controls);
#define CC_CONTROL(control) REGISTER(cc_controls, control)

/* A loop over all controls: those of the table, and then those that were added (cc_add) */
#define CC_EACH(cc) for (const struct cc_algorithm *cc = cc_next(NULL); cc; cc = cc_next(cc))

const struct cc_algorithm *cc_next(const struct cc_algorithm *cc);
void cc_add(struct cc_algorithm *cc);

size_t cc_own_bytes(void);
double cc_param(const struct qp *q, unsigned which);
double cc_answer_param(const struct qp *q, unsigned which);
void cc_start(struct fabric *f, struct qp *q);
void cc_stop(struct qp *q);
void cc_catch_up(struct fabric *f, struct qp *q);
void cc_sent(struct fabric *f, struct qp *q, uint32_t frame_bytes);
ps_t cc_answered(const struct qp *q, const struct frame *fr);
void cc_told(struct fabric *f, struct qp *q, const struct cc_ack *of, const struct roce_packet *pkt, const struct frame *fr);
void cc_notified(struct fabric *f, struct qp *q);
void cc_lost(struct fabric *f, struct qp *q, enum cc_loss how, uint32_t packets);
uint8_t cc_hops(const struct qp *q);
uint32_t cc_ack_gap(const struct qp *q);
bool cc_window_open(const struct qp *q, uint64_t under_way);
bool cc_round_over(struct qp *q, const struct cc_ack *ack);
void cc_restart(struct fabric *f, struct qp *q);
void cc_set_rate(struct qp *q, double bps, ps_t t);
void cc_set_window(struct qp *q, double bytes);

/* ps() - What a parameter in ns is of emulated time */
static inline ps_t ps(double ns)
{
	return (ps_t)(ns * PS_PER_NS + 0.5);
}

extern const struct cc_algorithm cc_none;

#endif
