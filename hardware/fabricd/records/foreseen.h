/* What a worker says when something comes, said beforehand (foreseen.c) */
#ifndef RECORDS_FORESEEN_H
#define RECORDS_FORESEEN_H

#include <stdbool.h>
#include <stdint.h>

#include "records/records.h"

#define CHAINS_MAX 1024
#define FORESEEN_MAX 16384
#define ANSWERED_MAX 256 /* of which the worker has not been told */

/* A record that is expected */
struct foreseen {
	struct foreseen *other;	 /* of its bucket */
	struct foreseen *behind; /* in its chain */
	uint32_t chain;
	uint16_t kind;
	bool told; /* the worker is to be told of it */
	uint64_t key;
	uint32_t bytes;
	uint8_t said[]; /* the worker's answer */
};

struct foresight;

bool foreseen_add(struct foresight **all, const struct foreseen *what, const uint8_t *said);
struct foreseen *foreseen_answer(struct foresight *s, const struct record *r);
uint32_t foreseen_answered(struct foresight *s, const struct record **records);
void foreseen_told(struct foresight *s, const struct record *r);
void foreseen_free(struct foresight **all);

#endif
