/* What a job may do in an accelerator: its program, and its slots (program.c) */
#ifndef ACCELERATOR_PROGRAM_H
#define ACCELERATOR_PROGRAM_H

#include "accelerator/accelerator.h"

struct child {
	uint32_t ip;
	bool accelerator; /* below; else a rank */
};

struct slot {
	uint32_t use[2];
	bool complete[2];
	uint64_t seen[2], asked[2]; /* asked: who is to get the parent's answer */
	uint64_t told[2]; /* root: whom what was sent last is for; below: who has asked since the last question */
	uint64_t place[2]; /* of what was sent last, among all frames of its class that ever left here */
	uint64_t offset[2];
	uint32_t owner[2]; /* who alone wants the sum (0: all do) */
	uint16_t count[2];
	int16_t exponent[2], next[2];
	int32_t *sum[2];
};

struct program {
	struct program *next;
	uint32_t job, slots, children, group_ip;
	uint32_t parent_ip; /* 0: this is the root */
	uint16_t parent_child; /* what the parent knows this one as */
	struct child child[FAN_IN_MAX];
	int32_t *sums;
	struct slot slot[];
};

struct program *program_of(const struct accelerator *a, uint32_t job);
bool slot_held(const struct accelerator *a, const struct program *p, uint32_t slot);
void program_free(struct program *p);

#endif
