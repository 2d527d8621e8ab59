/* Parameters of a NIC, of its congestion control among them: see link/params.h. */
#ifndef NIC_PARAMS_H
#define NIC_PARAMS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/units.h"

struct cc_algorithm;

/* Parameters of congestion control, each with its key in the configuration: rates in bits/s, times in ns, sizes in bytes */
#define CC_PARAM_TABLE(X)                            \
	X(MIN_RATE, "min_rate_bps")                      \
	X(AI, "ai_bps")                                  \
	X(HAI, "hai_bps")                                \
	X(G, "g")                                        \
	X(ALPHA_TIMER, "alpha_timer_ns")                 \
	X(RATE_TIMER, "rate_timer_ns")                   \
	X(BYTE_COUNTER, "byte_counter_bytes")            \
	X(FAST_RECOVERY, "fast_recovery")                \
	X(DECREASE_GAP, "decrease_gap_ns")               \
	X(CNP_GAP, "cnp_gap_ns")                         \
	X(BASE_RTT, "base_rtt_ns")                       \
	X(ETA, "eta")                                    \
	X(MAX_STAGE, "max_stage")                        \
	X(EWMA, "ewma")                                  \
	X(BETA, "beta")                                  \
	X(T_LOW, "t_low_ns")                             \
	X(T_HIGH, "t_high_ns")                           \
	X(MIN_RTT, "min_rtt_ns")                         \
	X(HAI_AFTER, "hai_after")                        \
	X(BASE_TARGET, "base_target_ns")                 \
	X(HOP_SCALE, "hop_scale_ns")                     \
	X(FLOW_RANGE, "flow_range_ns")                   \
	X(FLOW_MIN_WINDOW, "flow_min_window")            \
	X(FLOW_MAX_WINDOW, "flow_max_window")            \
	X(MAX_DECREASE, "max_decrease")                  \
	X(AI_PACKETS, "ai_packets")                      \
	X(TARGET_QUEUE, "target_queue_ns")               \
	X(WINDOW, "window_bytes")                        \
	X(MIN_WINDOW, "min_window")                      \
	X(PROPORTIONAL_PACKETS, "proportional_packets")  \
	X(PERIOD_PACKETS, "period_packets")              \
	X(FAST, "fast")                                  \
	X(QUICK_ADAPT, "quick_adapt_ns")                 \
	X(CLAMP_TARGET, "clamp_target")                  \
	X(ARMED, "first_cut")                            \
	X(HOPS, "hops")                                  \
	X(HOP_RTT, "hop_rtt_ns")                         \
	X(SWITCHES, "switches")

enum cc_param {
#define CC_PARAM(which, name) CC_##which,
	CC_PARAM_TABLE(CC_PARAM)
#undef CC_PARAM
	CC_PARAMS
};

struct cc_params {
	double v[CC_PARAMS];
};

struct nic_params {
	int64_t pcie_bps;
	ps_t pcie_latency, post, timeout, rnr_timeout, recv_delay;
	uint64_t tx_buffer_bytes, rx_buffer_bytes, rx_xoff_bytes, rx_xon_bytes;
	/* the reduction engine of an on-path SmartNIC: bits of one operand, packets, added or not (0: no limit); its memory
	 * (0: there is no engine), and what it reads ahead of sending or adding */
	uint64_t engine_reduce_bps, engine_packets_per_s, engine_memory_bytes, engine_prefetch_bytes;
	uint32_t ack_every, retry, rnr_retry, reorder_packets;
	uint32_t data_dscp, ack_dscp, cnp_dscp, data_class, ack_class, cnp_class;
	uint8_t lossless, storm; /* classes that it pauses when its receive buffer fills, and in which nothing probes; pauses
				  * without end */
	double slow;		 /* host and GPU take so many times as long */
	bool frozen;		 /* the worker is not woken */
	bool selective;		 /* selective repeat; otherwise go-back-N */
	const struct cc_algorithm *cc;
	struct cc_params cc_params;
};

#endif
