/* Credit: what a queue pair may send because its receiver lets it (credit.c), and whom of its senders a NIC lets send next
 * (cc/puller.c).  Both directions of a queue pair are in one state, which only those have that need it.
 */
#ifndef TRANSPORT_CREDIT_H
#define TRANSPORT_CREDIT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/units.h"
#include "wire/credit.h"

struct fabric;
struct frame;
struct nic;
struct qp;
struct roce_packet;
struct send_wr;

struct credit {
	/* sender, in bytes of payload */
	int64_t left;	/* may be sent; a packet goes while there is any, so it may fall below 0 */
	uint64_t unsent; /* of its requests, what is sent again not counted */
	uint32_t known; /* granted so far, as far as it knows: modulo 2^32, like all that follow */
	uint32_t told;	/* up to where it would like to be granted, as it has said */
	bool speculates; /* nothing was granted yet: what is left is its own */
	ps_t since;	/* when it last heard of its receiver, while it waits for credit */
	ps_t ask;	/* when to ask again, or PS_NEVER */
	uint32_t asked; /* so many times in a row */
	/* receiver */
	uint32_t granted, target, end, rest;
	uint64_t owed;	 /* what its turns are to bring */
	uint64_t again;	 /* of that for what was trimmed */
	double rank;	 /* the least first */
	bool queued, stays; /* it stands in its NIC's queue; and keeps its place while nothing is owed */
	struct qp *next, *prev;
	void (*forget)(struct qp *q); /* takes it out of there */
};

struct credit *credit_of(struct qp *q);
void credit_start(struct fabric *f, struct qp *q);
void credit_release(struct qp *q);
void credit_posted(struct qp *q, const struct send_wr *wr);
void credit_owed(struct qp *q, uint64_t bytes);
void credit_dropped(struct qp *q, uint64_t bytes);
void credit_answers(struct qp *q, uint32_t bytes, uint64_t begins, bool new);
bool credit_open(const struct qp *q);
void credit_spend(struct qp *q, uint32_t bytes, bool new);
void credit_say(struct fabric *f, struct qp *q, struct frame *fr);
void credit_look(struct fabric *f, struct qp *q);
ps_t credit_due(const struct qp *q);
void credit_ask(struct fabric *f, struct qp *q);
void credit_one(struct qp *q);
void credit_granted(struct fabric *f, struct qp *q, const struct roce_packet *pkt);
void credit_trimmed(struct fabric *f, struct qp *q);
void credit_asked(struct fabric *f, struct qp *q, const struct roce_packet *pkt);
void credit_arrived(struct fabric *f, struct qp *q, const struct frame *fr, uint32_t bytes);
void credit_forget(struct qp *q);

#endif
