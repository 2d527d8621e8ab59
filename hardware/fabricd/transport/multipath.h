/* Several paths of one queue pair: what a policy is, and how its queue pair calls it (multipath.c)
 *
 * A path is an entropy, 0 and up: the UDP source port so far behind the queue pair's own, which switches hash.  A policy
 * says which one the next packet takes.  It hears of acknowledgements, each of which returns the entropy of one packet and
 * whether that was marked, of losses and of timeouts.
 */
#ifndef TRANSPORT_MULTIPATH_H
#define TRANSPORT_MULTIPATH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/registry.h"
#include "base/units.h"
#include "nic/params.h"

struct fabric;
struct frame;
struct qp;
struct roce_packet;

#define ENTROPIES_COUNTED 1024 /* with more than these nothing is counted of each */

/* What is known of one entropy */
struct path_count {
	uint32_t sent, returned, marked, lost, trimmed, timed;
	ps_t took; /* of those that were timed, together */
};

struct multipath_policy {
	const char *name;
	const char *params[MULTIPATH_PARAMS]; /* keys in the configuration */
	size_t state_bytes, entropy_bytes; /* of its own, zeroed when it starts: of a queue pair, and of each entropy */
	bool hears; /* the receiver acknowledges a marked packet at once */
	const char *(*wrong)(const double *params); /* what is wrong with parameters; NULL: nothing, as without it */
	/* the next packet's entropy */
	uint32_t (*pick)(struct fabric *f, struct qp *q);
	/* all of these may be NULL */
	void (*start)(struct fabric *f, struct qp *q);
	void (*returned)(struct fabric *f, struct qp *q, uint32_t entropy, bool marked);
	void (*lost)(struct fabric *f, struct qp *q, uint32_t entropy);
	void (*trimmed)(struct fabric *f, struct qp *q, uint32_t entropy); /* lost, and its receiver has said so */
	void (*timeout)(struct fabric *f, struct qp *q);
	struct multipath_policy *next; /* of those that are in no table (multipath_add) */
};

/* A policy is one file, which ends with MULTIPATH_POLICY(what it defines) */
REGISTRY(struct multipath_policy, multipath_policies);
#define MULTIPATH_POLICY(policy) REGISTER(multipath_policies, policy)

/* Of a queue pair that sprays; the policy's own behind it */
struct multipath {
	_Alignas(max_align_t) struct multipath_params p;
	uint64_t first;	  /* number of the first packet that was sent so */
	uint64_t draws;	  /* random numbers that were drawn */
	uint32_t room;	  /* of `used`: a power of two */
	uint16_t *used;	  /* entropies of packets, by number */
	struct path_count *count; /* by entropy, or NULL */
	ps_t took;	  /* the packet that the last acknowledgement answers; 0: not known */
};

void multipath_add(struct multipath_policy *policy);
const struct multipath_policy *multipath_find(const char *name);
void multipath_start(struct fabric *f, struct qp *q);
void multipath_release(struct qp *q);
uint16_t multipath_port(struct fabric *f, struct qp *q, uint64_t n, bool lost);
void multipath_returned(struct fabric *f, struct qp *q, const struct roce_packet *pkt, const struct frame *fr);
void multipath_lost(struct fabric *f, struct qp *q, uint64_t n);
void multipath_trimmed(struct fabric *f, struct qp *q, uint16_t port);
void multipath_timeout(struct fabric *f, struct qp *q);
uint64_t multipath_draw(const struct fabric *f, struct qp *q);
double multipath_param(const struct qp *q, unsigned which);
void *multipath_own(const struct qp *q);
void *multipath_own_of_entropies(const struct qp *q);

#endif
