/* What has happened to a worker, in the order of time (records.c) */
#ifndef RECORDS_RECORDS_H
#define RECORDS_RECORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/units.h"

enum record_kind {
#define RECORD(number, name, meaning, behind) REC_##name = number,
#include "records/records.def"
#undef RECORD
};

struct record {
	uint16_t kind;
	uint32_t status;
	uint64_t wr_id;
	ps_t t;
	uint32_t qp, imm;
	uint64_t bytes;
};

struct record_block;

struct records {
	struct record_block **block, *spare;
	uint32_t blocks, room;
	size_t count;
};

void records_add(struct records *q, const struct record *r);
const struct record *records_nth(const struct records *q, size_t n);
size_t records_due(const struct records *q, ps_t t);
void records_drop(struct records *q, size_t n);
void records_free(struct records *q);

#endif
