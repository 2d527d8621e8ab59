/* Parameters of the hardware that may change while the fabric lives.
 *
 * Each thing has them twice: `base`, as configured, and `p`, in force.  A fault
 * lays its values over the base (fault_params.c); when it is healed, `p` is made
 * anew from the base and the faults that are left.  So nothing has to be put
 * back by hand, in whatever order faults end.
 */
#ifndef PARAMS_H
#define PARAMS_H

#include <stdbool.h>
#include <stdint.h>

typedef int64_t ps_t;
#define PS_NEVER INT64_MAX
#define PS_PER_NS 1000
#define PS_PER_US 1000000
#define PS_PER_S 1000000000000LL

#define CLASSES 8
#define DSCPS 64

/* RED on the queue as it is: probability 0 up to kmin, pmax at kmax, 1 above */
struct ecn_params {
	bool on;
	uint64_t kmin_bytes, kmax_bytes;
	double pmax;
};

struct watchdog_params {
	bool on, drop; /* drop: what the queue holds and gets; otherwise the pause is ignored */
	ps_t detect, restore;
};

struct switch_params {
	uint64_t buffer_bytes, reserve_bytes, xon_offset_bytes;
	uint32_t alpha_1024; /* dynamic threshold: this share, in 1024ths, of the shared buffer that is free */
	uint8_t dscp_class[DSCPS];
	uint8_t lossless, strict; /* a bit a class */
	uint8_t weight[CLASSES];  /* among the classes that are not strict */
	struct ecn_params ecn[CLASSES];
	struct watchdog_params watchdog;
	bool accelerator_down; /* it answers nothing */
};

/* A port of a switch or NIC */
struct port_params {
	uint64_t headroom_bytes; /* of each lossless class */
	bool pfc_rx, pfc_tx;	 /* obeys, sends */
	bool own_ecn;		 /* marks by `ecn` and not by its switch's, unless a fault says otherwise */
	struct ecn_params ecn[CLASSES];
};

struct cable_params {
	bool up;
	int64_t rate_bps;
	ps_t delay;
	uint32_t mtu; /* frames with a longer IP packet are dropped; 0: no limit */
};

/* Parameters of congestion control, by name in cc.c: rates in bits/s, times in ns, sizes in bytes */
enum cc_param {
	CC_MIN_RATE, CC_AI, CC_HAI, CC_G, CC_ALPHA_TIMER, CC_RATE_TIMER, CC_BYTE_COUNTER, CC_FAST_RECOVERY,
	CC_DECREASE_GAP, CC_CNP_GAP, CC_BASE_RTT, CC_ETA, CC_MAX_STAGE, CC_EWMA, CC_BETA, CC_T_LOW, CC_T_HIGH, CC_MIN_RTT,
	CC_HAI_AFTER, CC_BASE_TARGET, CC_HOP_SCALE, CC_FLOW_RANGE, CC_FLOW_MIN_WINDOW, CC_FLOW_MAX_WINDOW, CC_MAX_DECREASE,
	CC_AI_PACKETS, CC_TARGET_QUEUE, CC_WINDOW, CC_MIN_WINDOW, CC_PROPORTIONAL_PACKETS, CC_PERIOD_PACKETS, CC_FAST,
	CC_QUICK_ADAPT, CC_CLAMP_TARGET, CC_ARMED, CC_PARAMS
};

struct cc_params {
	double v[CC_PARAMS];
};

struct cc_algorithm;

struct nic_params {
	int64_t pcie_bps;
	ps_t pcie_latency, post, timeout, rnr_timeout, recv_delay;
	uint64_t tx_buffer_bytes, rx_buffer_bytes, rx_xoff_bytes, rx_xon_bytes;
	/* the reduction engine of an on-path SmartNIC: bits of one operand, packets, added or not (0: no limit); its memory
	 * (0: there is no engine), and what it reads ahead of sending or adding */
	uint64_t engine_reduce_bps, engine_packets_per_s, engine_memory_bytes, engine_prefetch_bytes;
	uint32_t ack_every, retry, rnr_retry, reorder_packets;
	uint32_t data_dscp, ack_dscp, cnp_dscp, data_class, ack_class, cnp_class;
	uint8_t lossless, storm; /* classes that it pauses when its receive buffer fills; pauses without end */
	double slow;		 /* host and GPU take so many times as long */
	bool frozen;		 /* the worker is not woken */
	bool selective;		 /* selective repeat; otherwise go-back-N */
	const struct cc_algorithm *cc;
	struct cc_params cc_params;
};

#endif
