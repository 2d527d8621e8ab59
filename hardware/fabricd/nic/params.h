/* Parameters of a NIC, of its congestion control among them: see link/params.h. */
#ifndef NIC_PARAMS_H
#define NIC_PARAMS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/units.h"

struct cc_algorithm;
struct multipath_policy;

/* Parameters of congestion control: those that are common, those that a control names (transport/congestion.h), and those
 * of credit (transport/credit.h): what a sender has by itself, packets of one credit, share of the cable that is granted, a
 * request so often, and senders that have their turns at a time
 */
enum cc_common {
	CC_WINDOW, CC_MIN_RATE, CC_HOPS, CC_OWN,
	CC_CREDIT = 32, CC_INITIAL = CC_CREDIT, CC_GRANT, CC_SHARE, CC_ASK, CC_ACTIVE, CC_PARAMS
};

struct cc_params {
	double v[CC_PARAMS];
};

/* Several paths of a queue pair (transport/multipath.h); without a policy: one */
#define MULTIPATH_PARAMS 24 /* as many as a file of a user's own may have (plugin/railbed.h) */

struct multipath_params {
	const struct multipath_policy *policy;
	uint32_t entropies; /* a power of two */
	double v[MULTIPATH_PARAMS];
};

#define DSCP_NONE 64
#define RETRIES_MAX 1000

struct nic_params {
	int64_t pcie_bps;
	ps_t pcie_latency, post, timeout, rnr_timeout, recv_delay;
	uint64_t tx_buffer_bytes, rx_buffer_bytes, rx_xoff_bytes, rx_xon_bytes;
	/* the reduction engine of an on-path SmartNIC: bits of one operand, packets, added or not (0: no limit); its memory
	 * (0: there is no engine), and what it reads ahead of sending or adding */
	uint64_t engine_reduce_bps, engine_packets_per_s, engine_memory_bytes, engine_prefetch_bytes;
	uint32_t ack_every, retry, rnr_retry, reorder_packets;
	uint32_t retry_most; /* whatever its queue pairs ask for */
	uint32_t first_psn; /* of its queue pairs' first packets */
	uint32_t sack_bits, sack_every; /* bitmaps of what came ahead (transport/answer.c); 0 bits: none */
	ps_t loss_after; /* selective repeat: a hole waits so long (transport/repeat.c); 0: until something overtakes it */
	uint32_t trimmed_dscp; /* what comes in with it and has no right ICRC was trimmed (switch/trim.c); DSCP_NONE: nothing is */
	uint32_t trimmed_last_hop_dscp; /* likewise, by the switch before this NIC */
	uint32_t data_dscp, ack_dscp, cnp_dscp, data_class, ack_class, cnp_class;
	uint8_t lossless, storm; /* classes that it pauses when its receive buffer fills, and in which nothing probes; pauses
				  * without end */
	double slow;		 /* host and GPU take so many times as long */
	bool frozen;		 /* the worker is not woken */
	bool takes_in_order;	 /* and no packet ahead of its turn, whoever sends it */
	bool keys_stale[2];	 /* those that queue pairs of before name: of its memory for peers (0), and for itself (1) */
	bool gids_moved;	 /* its GID of RoCE v2 is not the first one */
	bool selective;		 /* selective repeat; otherwise go-back-N */
	bool probes;		 /* and it asks when nothing is heard */
	bool fixed_port;	 /* all its queue pairs have the same UDP source port */
	bool any_order;		 /* and writes are placed when they come, in any order (transport/place.c) */
	const struct cc_algorithm *cc;
	struct cc_params cc_params;
	struct multipath_params multipath;
};

/* nic_bears_reordering() - Is it set up for packets that overtake each other?  If so, it counts what they do */
static inline bool nic_bears_reordering(const struct nic_params *p)
{
	return p->any_order || p->sack_bits || p->loss_after;
}

#endif
