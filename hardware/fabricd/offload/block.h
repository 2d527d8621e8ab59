/* Blocks of a request's vector as the int32 that travel (block.c) */
#ifndef OFFLOAD_BLOCK_H
#define OFFLOAD_BLOCK_H

#include "offload/offload.h"

#define BLOCK_ELEMENTS_MAX 2250

/* Arguments: of a share of a longer vector, which says whose parts are whose, its first element and how many the vector has
 * (0: the request is for all of it); the index of the one that wants the sums */
enum block_args { BLOCKS_FIRST, BLOCKS_WHOLE, BLOCKS_WHO };

/* Who wants a request's sums (its `collective`): all of them, one member, each rank its part of the vector */
enum block_wanted { BLOCKS_TO_ALL, BLOCKS_TO_ONE, BLOCKS_IN_PARTS, BLOCKS_WANTED };

const char *block_check(const struct member *m, const struct offload_wr *wr);
bool block_is_scaled(const struct offload_wr *wr);
uint32_t block_owner(const struct member *m, const struct offload_wr *wr, uint32_t elements, uint64_t block);
uint32_t block_count(const struct offload_wr *wr, uint32_t elements, uint64_t block);
int16_t block_exponent(const struct member *m, const struct offload_wr *wr, uint32_t elements, uint64_t block);
void block_read(const struct member *m, const struct offload_wr *wr, uint32_t elements, uint64_t block, int exponent,
		int32_t *to);
void block_write(const struct member *m, const struct offload_wr *wr, uint32_t elements, uint64_t block, int exponent,
		 const uint8_t *payload);
ps_t block_conversion(struct member *m, const struct offload_wr *wr, uint32_t count, double bps);

#endif
