/* Parameters of a switch: see link/params.h. */
#ifndef SWITCH_PARAMS_H
#define SWITCH_PARAMS_H

#include <stdbool.h>
#include <stdint.h>

#include "link/params.h"

#define DSCPS 64

struct watchdog_params {
	bool on, drop; /* drop: what the queue holds and gets; otherwise the pause is ignored */
	ps_t detect, restore;
};

struct pick_policy;

#define PICK_PARAMS 24 /* as many as a file of a user's own may have (plugin/railbed.h) */

/* Which of several ports a frame takes */
struct adaptive_params {
	const struct pick_policy *policy; /* NULL: Open vSwitch names one port */
	double v[PICK_PARAMS];		  /* its parameters */
	ps_t flowlet_gap;		  /* 0: each frame by itself */
	uint32_t flowlet_entries;
	bool local_repair; /* a port whose cable is down is passed over */
	uint32_t basis;	   /* of its hash */
	uint8_t bands;	   /* of what is seen of a queue; 0: all is seen */
	ps_t every;
};

/* A lossy frame that finds no place is cut to its first bytes, and goes by another queue (trim.c) */
struct trim_params {
	bool on;
	uint8_t classes; /* a bit a class: in which frames are trimmed */
	uint8_t dscp, queue; /* what it gets, and the class of the queue that it goes by */
	uint8_t last_hop_dscp; /* what it gets where its cable leads to a NIC */
	uint32_t bytes;	 /* that are left */
};

struct switch_params {
	uint64_t buffer_bytes, reserve_bytes, xon_offset_bytes;
	uint32_t alpha_1024; /* dynamic threshold: this share, in 1024ths, of the shared buffer that is free */
	uint8_t dscp_class[DSCPS];
	uint8_t lossless; /* a bit a class */
	struct schedule schedule;
	struct ecn_params ecn[CLASSES];
	struct watchdog_params watchdog;
	struct adaptive_params adaptive;
	struct trim_params trim;
	bool accelerator_down; /* it answers nothing */
	uint32_t slots_leaked; /* so many of its slots are held for nobody */
};

extern const struct switch_params switch_plain;

#endif
