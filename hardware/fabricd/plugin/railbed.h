/* Algorithms of one's own, in one C file outside the tree (docs/own-controls.md, docs/own-paths.md)
 *
 * The file includes this header, defines functions, and ends with what they are:
 *
 * - RAILBED_CONTROL(version, ..): a congestion control.  Each queue pair that sends is a flow.  A function reads what there
 *   is of it, and sets `rate`, `window` and `timer`; these come into force, within their bounds, when it returns.
 * - RAILBED_MULTIPATH(version, ..): which path, that is, which UDP source port, a queue pair's next packet takes.
 * - RAILBED_ADAPTIVE(version, ..): which of several ports a switch takes for a frame.
 *
 * All follows from the arguments: what is to be remembered stands in the state of a flow, a queue pair, a switch; there
 * are no variables, clocks and files, and random numbers are those that the header gives.
 *
 * Times are in ns, rates in bits/s on the wire, sizes in bytes.
 */
#ifndef RAILBED_H
#define RAILBED_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define RAILBED_VERSION 2	 /* what is written for version 1 is right for this one, too */
#define RAILBED_PARAMETERS 24	 /* of an algorithm, at most */
#define RAILBED_STATE_BYTES 1024 /* of a flow or queue pair, and of a set of ports, at most */
#define RAILBED_ENTROPY_BYTES 16 /* of each path of a queue pair, at most */
#define RAILBED_SWITCH_BYTES 1048576 /* of a switch, at most */

struct railbed_flow {
	double now;	  /* of the fabric's clock */
	double line_rate; /* of the NIC's cable */
	double mtu;	  /* payload of a full packet */
	double rate;	  /* set: packets leave so fast; line_rate: as fast as they can */
	double window;	  /* set: payload under way at most, one packet at least; 0: no limit has been set yet */
	double timer;	  /* set: when `timer` is to be called, once; INFINITY: never */
	uint64_t sent;	  /* packets that have left, sent again ones not counted */
	uint64_t acked;	  /* of them so many, from the first on, are known to have come */
	uint32_t timeouts; /* in a row: how often what is not acknowledged was sent again */
	const double *parameter; /* values, in the order of the control's parameters */
	void *state;	  /* state_bytes, zeros when the flow begins */
};

/* What a switch on the way stamps when the packet starts on its cable (RAILBED_STAMPS) */
struct railbed_stamp {
	uint32_t time;	      /* in 256 ps, modulo 2^32 */
	uint32_t sent_bytes;  /* by that port so far, modulo 2^32 */
	uint32_t queue_bytes; /* behind it */
	uint32_t rate_mbps;   /* of the cable */
};

struct railbed_ack {
	double bytes;	 /* of payload that are newly known to have come */
	double packets;	 /* likewise */
	double rtt;	 /* from the start on the cable to now; 0: not known */
	uint32_t seen, marked; /* packets that came since the last acknowledgement, and those with CE */
	uint32_t switches;     /* on the way */
	uint32_t stamps;
	const struct railbed_stamp *stamp;
	bool round;	 /* with `rounds`: a packet has come that was sent after the last such acknowledgement */
};

/* Of a sender, at its receiver: a packet has come, or the sender asks, or it was granted something.  Sizes of payload */
struct railbed_arrival {
	double now;
	double line_rate, mtu;
	double came;  /* with the packet; 0: it was granted something, or asks */
	bool asks;    /* it waits, and has heard nothing for long */
	double wants; /* that it would like to have beyond what it was granted, as far as its `window` lets it; below 0: it has more */
	double owed;  /* by the claim before */
	double under_way; /* behind what has come: on its way, or may be sent */
	double rest;  /* that it needs beyond what it was granted, for all it has (by_message: for its message) */
	const double *parameter;
};

/* What is to be granted to it, in credits of `grant_packets`: so many bytes; the least rank first, equals in turn */
struct railbed_claim {
	double owed, rank;
	bool stays; /* it is one of `overcommit` that have their turns, though nothing is owed to it now */
};

enum railbed_loss { RAILBED_NAK, RAILBED_TIMEOUT };

/* An amount: so many times something of the fabric */
enum railbed_of {
	RAILBED_ONE,
	RAILBED_LINE_RATE,
	RAILBED_BASE_RTT,    /* idle round trip of the longest path, fetch from memory included: as windows count */
	RAILBED_NETWORK_RTT, /* from the cable on: as round trips are measured */
	RAILBED_BDP,	     /* line_rate x base_rtt, in bytes */
	RAILBED_NETWORK_BDP, /* line_rate x network_rtt */
	RAILBED_MTU,
	RAILBED_SWITCHES /* of the longest path */
};

struct railbed_amount {
	double times;
	enum railbed_of of;
};

/* As the experiment file writes it: 0.5; 40Gbps; 10us; 64KB */
enum railbed_kind { RAILBED_NUMBER, RAILBED_RATE, RAILBED_TIME, RAILBED_SIZE };

struct railbed_parameter {
	char name[32];
	enum railbed_kind kind;
	struct railbed_amount value; /* if the experiment says nothing */
	double least, most;	     /* most 0: no limit */
	char about[96];
};

/* What rate or window follow; losses are told in any case */
/* and RAILBED_CREDIT: packets go only as far as the receiver, by `arrived`, lets them */
enum railbed_hears { RAILBED_MARKS = 1, RAILBED_DELAY = 2, RAILBED_STAMPS = 4, RAILBED_LOSSES = 8, RAILBED_CREDIT = 16 };

struct railbed_control {
	uint32_t version;
	uint32_t state_bytes;
	uint32_t hears;		   /* of railbed_hears */
	bool rounds;		   /* acts once a round trip: the packet that ends one asks to be acknowledged */
	bool fills_window;	   /* a packet may go while less than the window is under way; otherwise it has to fit */
	bool answers_marks;	   /* the receiver acknowledges a marked packet at once */
	bool by_message;	   /* RAILBED_CREDIT: each message brings `initial` bytes of its own */
	bool speculates;	   /* likewise: so has who has had nothing to send; otherwise only who begins */
	char summary[96], source[96];
	struct railbed_parameter parameters[RAILBED_PARAMETERS];
	struct railbed_amount kmin, kmax; /* of switches where the experiment says nothing; {0}: theirs */
	double pmax;
	/* each may be left out */
	void (*start)(struct railbed_flow *flow);
	void (*acked)(struct railbed_flow *flow, const struct railbed_ack *ack);
	void (*lost)(struct railbed_flow *flow, enum railbed_loss how, uint32_t packets); /* go-back-N: 1 packet */
	void (*sent)(struct railbed_flow *flow, uint32_t frame_bytes); /* it starts on the cable */
	void (*timer)(struct railbed_flow *flow);	/* at flow->now; it wakes nobody whose window is closed */
	bool (*notified)(struct railbed_flow *flow);	/* by a CNP, every `cnp_gap` at most; whether it was heeded */
	void (*arrived)(const struct railbed_arrival *arrival, struct railbed_claim *claim); /* at the receiver */
	void (*granted)(struct railbed_flow *flow, double bytes); /* by its receiver */
};

/* Several paths of one queue pair: an entropy, from 0 on, is a UDP source port, which switches hash */

struct railbed_paths {
	double now;
	double line_rate, mtu;
	uint32_t entropies; /* so many there are: a power of two */
	uint32_t timeouts;  /* in a row */
	uint64_t sent;	    /* packets that have left, sent again ones not counted */
	uint64_t acked;	    /* of them so many, from the first on, are known to have come */
	uint64_t delivered; /* of them so many, in whatever order */
	const double *parameter;
	void *state;   /* state_bytes, zeros when the queue pair begins */
	void *entropy; /* likewise entropy_bytes for each entropy, one behind the other */
	uint64_t (*random)(struct railbed_paths *paths);
};

/* An acknowledgement returns the entropy of the packet that it answers, and whether that was marked */
struct railbed_returned {
	uint32_t entropy;
	bool marked;
	double took; /* from the start on the cable to now; 0: not known, as the control has nobody measure it */
};

struct railbed_multipath {
	uint32_t version;
	uint32_t state_bytes;
	uint32_t entropy_bytes;
	bool marks;    /* it goes by marks: the receiver acknowledges a marked packet at once */
	bool one_path; /* packets take one path for long, not all of them at once */
	char summary[96], source[96];
	struct railbed_parameter parameters[RAILBED_PARAMETERS];
	struct railbed_amount kmin, kmax; /* of switches where the experiment says nothing; {0}: theirs */
	double pmax;
	/* all but `pick` may be left out */
	uint32_t (*pick)(struct railbed_paths *paths); /* for the next packet: below `entropies` */
	void (*start)(struct railbed_paths *paths);
	void (*returned)(struct railbed_paths *paths, const struct railbed_returned *back);
	void (*lost)(struct railbed_paths *paths, uint32_t entropy); /* the packet that had it */
	void (*timeout)(struct railbed_paths *paths);		     /* nothing was heard for long */
	void (*trimmed)(struct railbed_paths *paths, uint32_t entropy); /* likewise lost, and its receiver has said so */
};

/* Which of several ports a switch takes.  A set of ports is what the tables name for a frame: those on shortest paths to
 * its destination, without those whose cable is down.
 */

struct railbed_port {
	uint32_t number;
	uint32_t weight;
};

struct railbed_choice {
	double now;
	double bytes;	/* of the frame */
	uint32_t ports; /* in the set: two at least */
	uint32_t turns; /* their weights, summed */
	const struct railbed_port *port;
	const uint8_t *turn; /* places in `port`, each as often as it weighs, those of one as far apart as can be */
	const double *parameter;
	void *state; /* of the switch: state_bytes, zeros at first */
	void *set;   /* of the set: set_bytes, likewise */
	uint64_t (*random)(struct railbed_choice *choice);
	double (*load)(const struct railbed_choice *choice, uint32_t place);
	uint64_t (*flow)(const struct railbed_choice *choice);
};

struct railbed_adaptive {
	uint32_t version;
	uint32_t state_bytes, set_bytes;
	char summary[96], source[96];
	struct railbed_parameter parameters[RAILBED_PARAMETERS];
	uint32_t (*pick)(struct railbed_choice *choice); /* a place in `port` */
};

/* railbed_random() - 64 random bits; they follow from the experiment's seed, and from what they are for */
#define railbed_random(of) ((of)->random(of))

/* railbed_load() - How long the frame would wait at a port of the set, by its weight, and be under way on its cable, in ns.
 * With `quality` it is a band: the switch sees no more.  Of a port that has had more than its share by weight it is longer
 * than any queue takes.
 */
static inline double railbed_load(const struct railbed_choice *choice, uint32_t place)
{
	return choice->load(choice, place);
}

/* railbed_flow_of() - The same number for all frames of a flow: of its addresses and UDP ports */
static inline uint64_t railbed_flow_of(const struct railbed_choice *choice)
{
	return choice->flow(choice);
}

#define RAILBED_ENTRY(kind, written_for, ...) \
	__attribute__((visibility("default"), used)) const struct kind kind = {.version = (written_for), __VA_ARGS__}
#define RAILBED_CONTROL(written_for, ...) RAILBED_ENTRY(railbed_control, written_for, __VA_ARGS__)
#define RAILBED_MULTIPATH(written_for, ...) RAILBED_ENTRY(railbed_multipath, written_for, __VA_ARGS__)
#define RAILBED_ADAPTIVE(written_for, ...) RAILBED_ENTRY(railbed_adaptive, written_for, __VA_ARGS__)

#endif
