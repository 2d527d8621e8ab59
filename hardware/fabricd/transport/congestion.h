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

#include "base/units.h"
#include "nic/params.h"
#include "wire/telemetry.h"

struct fabric;
struct qp;

/* How a packet was found to be lost */
enum cc_loss { CC_LOSS_NAK, CC_LOSS_TIMEOUT };

struct cc_ack {
	uint64_t bytes, packets; /* newly known to have come, in order or not */
	uint64_t acked;		 /* packet number up to which all is acknowledged */
	ps_t rtt;		 /* 0: not known */
	bool full;		 /* of a packet as long as the MTU */
	uint32_t switches;	 /* on the way, by the TTL */
	const struct telemetry *t;
};

struct cc_state {
	double rate, line_rate; /* rate == line_rate: not paced */
	double window;		/* of payload under way; 0: no limit */
	double target_rate, alpha, reference;
	double slow_start; /* the window grows by what is acknowledged until it is so large */
	double rtt_diff, utilization;
	ps_t previous_rtt, last_decrease;
	ps_t alpha_timer, rate_timer, cut_timer; /* when they run out next; PS_NEVER: off */
	ps_t armed;	     /* DCQCN's ticks began; PS_NEVER: not yet */
	bool told;	     /* by a CNP since alpha's last tick */
	uint64_t byte_counter, timer_events, byte_events;
	uint64_t window_end; /* packet number that ends the round trip under way */
	uint64_t recover;    /* no second cut before this many packets are acknowledged */
	uint64_t round_seen, round_marked;
	uint32_t stage, falling, timeouts;
	double delay, gained, came, idle, achieved, ignored, to_ignore; /* NSCC's, in ns and bytes */
	double base_rtt, most; /* its path's, and of its window */
	ps_t adapt_at, adjusted;
	bool fast;
	struct telemetry before;
};

struct cc_algorithm {
	const char *name;
	bool cnp;	/* the receiver answers CE with notifications */
	bool telemetry; /* acknowledgements bring back time and marks */
	bool rounds;	/* acts once a round trip: the packet that ends one asks to be acknowledged */
	bool fills_window; /* a packet may go while less than the window is under way */
	bool stamped;	/* with what the switches on the way stamp, CC_HOPS of them */
	bool answers_marks; /* the receiver acknowledges a marked packet at once */
	void (*start)(struct fabric *f, struct qp *q);
	void (*catch_up)(struct fabric *f, struct qp *q);
	void (*sent)(struct fabric *f, struct qp *q, uint32_t bytes);
	void (*acked)(struct fabric *f, struct qp *q, const struct cc_ack *ack);
	bool (*notified)(struct fabric *f, struct qp *q); /* whether it was heeded */
	/* so many packets are found to be lost (go-back-N: one, whatever is behind it) */
	void (*lost)(struct fabric *f, struct qp *q, enum cc_loss how, uint32_t packets);
};

double cc_param(const struct qp *q, enum cc_param which);
void cc_start(struct fabric *f, struct qp *q);
void cc_catch_up(struct fabric *f, struct qp *q);
void cc_sent(struct fabric *f, struct qp *q, uint32_t frame_bytes);
void cc_acked(struct fabric *f, struct qp *q, const struct cc_ack *ack);
void cc_notified(struct fabric *f, struct qp *q);
void cc_lost(struct fabric *f, struct qp *q, enum cc_loss how, uint32_t packets);
uint8_t cc_hops(const struct qp *q);
uint32_t cc_ack_gap(const struct qp *q);
bool cc_window_open(const struct qp *q, uint64_t under_way);
bool cc_round_over(struct qp *q, const struct cc_ack *ack);
void cc_restart(struct fabric *f, struct qp *q);
void cc_set_rate(struct qp *q, double bps, ps_t t);
void cc_set_window(struct qp *q, double bytes);

extern const struct cc_algorithm cc_none;

#endif
