/* NSCC, by itself (nscc.c) and beside a receiver's credit (uec.c) */
#ifndef CC_NSCC_H
#define CC_NSCC_H

#include <stdbool.h>

#include "transport/congestion.h"

enum {
	BASE_RTT = CC_OWN, EWMA, BETA, MAX_DECREASE, AI_PACKETS, TARGET_QUEUE, PROPORTIONAL_PACKETS,
	PERIOD_PACKETS, FAST, QUICK_ADAPT, HOP_RTT, SWITCHES
};

/* In ns and bytes */
struct nscc {
	double delay, gained, came, idle, achieved, ignored, to_ignore;
	double base_rtt, most; /* its path's, and of its window */
	ps_t last_decrease, adapt_at, adjusted;
	bool fast, trimmed; /* something was trimmed since the window was last cut at once */
};

void nscc_start(struct fabric *f, struct qp *q);
void nscc_acked(struct fabric *f, struct qp *q, const struct cc_ack *ack);
void nscc_lost(struct fabric *f, struct qp *q, enum cc_loss how, uint32_t packets);

/* All of it, in a control's definition */
#define NSCC \
	.params = {[BASE_RTT] = "base_rtt_ns", [EWMA] = "ewma", [BETA] = "beta", [MAX_DECREASE] = "max_decrease", \
		   [AI_PACKETS] = "ai_packets", [TARGET_QUEUE] = "target_queue_ns", \
		   [PROPORTIONAL_PACKETS] = "proportional_packets", [PERIOD_PACKETS] = "period_packets", [FAST] = "fast", \
		   [QUICK_ADAPT] = "quick_adapt_ns", [HOP_RTT] = "hop_rtt_ns", [SWITCHES] = "switches"}, \
	.state_bytes = sizeof(struct nscc), .telemetry = true, .answers_marks = true, .start = nscc_start, \
	.acked = nscc_acked, .lost = nscc_lost

#endif
