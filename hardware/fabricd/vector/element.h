/* Elements of vectors, by their type: what accelerators and NICs add (element.c, sum.c) */
#ifndef VECTOR_ELEMENT_H
#define VECTOR_ELEMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum element { EL_FLOAT32, EL_FLOAT16, EL_BFLOAT16, EL_INT32, EL_INT8, EL_UINT8, EL_E4M3, EL_E5M2, ELEMENTS };
enum reduction { RED_SUM, RED_MIN, RED_MAX, RED_PROD, RED_AVG, RED_BAND, RED_BOR, RED_BXOR, REDUCTIONS };
extern const uint8_t element_bytes[ELEMENTS];
bool element_is_integer(enum element e);
bool reduction_fits(enum reduction how, enum element e);
bool reduction_adds(enum reduction how);
int32_t element_get_int(enum element e, const uint8_t *at, size_t i);
void element_put_int(enum element e, uint8_t *at, size_t i, int32_t x);
float element_get(enum element e, const uint8_t *at, size_t i);
void element_put(enum element e, uint8_t *at, size_t i, float x);
#define EXPONENT_ZERO (-2000) /* of nothing but zeros */
#define EXPONENT_BAD 2000     /* of something that has an infinity or a NaN in it */
int element_exponent(enum element e, const uint8_t *at, size_t count);
void element_to_fixed(enum element e, const uint8_t *at, size_t count, int shift, int32_t *to);
void element_from_fixed(enum element e, uint8_t *at, size_t count, int shift, double divisor, const int32_t *from);

void element_to_ordered(enum element e, const uint8_t *at, size_t count, bool least, int32_t *to);
void element_from_ordered(enum element e, uint8_t *at, size_t count, const int32_t *from);

int32_t int_combined(enum reduction how, int32_t mine, int32_t with);
float float_combined(enum reduction how, float mine, float with);
void block_add(int32_t *sum, const uint8_t *with, uint32_t count, uint8_t reduction);
void elements_divide(enum element e, uint8_t *at, size_t n, uint32_t ranks);

#endif
