/* Sums and copies in the switch of a scale-up domain: what its files share (domain.c) */
#ifndef DOMAIN_H
#define DOMAIN_H

#include "offload/offload.h"
#include "offload/requests.h"

/* What a request does (its `collective`): the first three are bits */
enum domain_does {
	DOMAIN_SUMS = 1,   /* each owner gets the sums of its part */
	DOMAIN_COPIES = 2, /* each owner's part goes to all: the sums, or else what it has */
	DOMAIN_ROOTED = 4, /* member args[0] owns the whole vector; else each an equal part */
	DOMAIN_ALL = 8,
};

#define LOADS_MAX 128u /* of a member at a time: more than the way there and back holds */

/* A block: which elements of which request, and whose it is */
struct block {
	uint64_t first;
	uint32_t number; /* of the request: all members post the same ones, in the same order */
	uint16_t count, owner, slot;
};

struct domain_sum;

struct blocks {
	struct block *at;
	uint32_t room, head, count;
};

struct domain {
	struct requests requests;
	uint32_t posted, told; /* requests so far; and what the others have been told of */
	uint32_t at;	       /* the request of whose part of ours the element `next` begins the next block */
	uint64_t next;
	uint32_t loads, open; /* blocks whose sums we have asked for so far; that we have not got, or not sent to all */
	struct blocks asked, sums; /* what others want of us; sums that are to go to all */
	struct domain_sum *in_switch; /* of all members' loads, the same for all */
	uint32_t heard[];	   /* how many requests each member has posted */
};

/* A sum in the switch: float32 for all floating-point numbers, int32 for integers */
struct domain_sum {
	struct block block;
	uint32_t seen;
	union domain_number {
		float f;
		int32_t i;
	} *at;
};

struct request *domain_request(const struct domain *d, uint32_t number);
uint64_t domain_part(const struct group *g, const struct offload_wr *wr, uint32_t owner, uint64_t *first);
uint32_t domain_elements(const struct group *g, const struct offload_wr *wr);
bool domain_has(const struct group *g, const struct offload_wr *wr, const struct block *b);
uint8_t *domain_memory(const struct member *m, const struct offload_wr *wr, bool out, const struct block *b);
void domain_took(struct fabric *f, struct member *m, struct request *r);
void blocks_add(struct blocks *q, const struct block *b);
struct block blocks_take(struct blocks *q);

/* send.c */
extern const struct tx_ops domain_tx;

/* switch.c */
bool domain_switch(struct fabric *f, struct member *m, const struct roce_packet *pkt, struct frame *fr);
struct block domain_block(const struct roce_packet *pkt);
struct domain_sum *domain_sums(uint32_t members);
void domain_sums_free(struct domain_sum *sums, uint32_t members);

#endif
