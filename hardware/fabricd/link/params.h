/* Parameters of the hardware that may change while the fabric lives.
 *
 * Each thing has them twice: `base`, as configured, and `p`, in force.  A fault
 * lays its values over the base (fault/params.c); when it is healed, `p` is made
 * anew from the base and the faults that are left.  So nothing has to be put
 * back by hand, in whatever order faults end.  Here: those of ports and cables.
 */
#ifndef LINK_PARAMS_H
#define LINK_PARAMS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/units.h"

#define CLASSES 8
#define CLASSES_EACH(c) for (unsigned c = 0; c < CLASSES; c++)

/* RED on the queue as it is: probability 0 up to kmin, pmax at kmax, 1 above */
struct ecn_params {
	bool on;
	uint64_t kmin_bytes, kmax_bytes;
	double pmax;
};

/* What a class may have of a port, and has in any case; shares of its rate */
struct shaper {
	double min, max;      /* 0: nothing is said */
	uint64_t burst_bytes; /* what it may catch up on, of both; 0: two of the longest frames */
};

/* Which classes go first, and what share the others have */
struct schedule {
	uint8_t strict;		 /* a bit a class */
	uint8_t weight[CLASSES]; /* among the classes that are not strict */
	uint8_t shaped;		 /* those with a shaper: likewise */
	struct shaper shaper[CLASSES];
};

/* A port of a switch or NIC */
struct port_params {
	uint64_t headroom_bytes; /* of each lossless class */
	bool pfc_rx, pfc_tx;	 /* obeys, sends */
	bool own_ecn;		 /* marks by `ecn` and not by its switch's, unless a fault says otherwise */
	struct ecn_params ecn[CLASSES];
	ps_t stale; /* its queue is seen by who chooses among ports no more often than that; 0: as it is */
};

struct cable_params {
	bool up;
	int64_t rate_bps;
	ps_t delay;
	uint32_t mtu; /* frames with a longer IP packet are dropped; 0: no limit */
	uint8_t credit_classes;	/* under credits (credits.c) */
	uint32_t credit_blocks; /* room of each, at either end */
	ps_t resync;		/* how often senders say what they have sent; 0: never */
	uint64_t retry_bytes;	/* replay buffer of either end (retry.c); 0: nothing is sent once more */
};

#endif
