/* Elements of vectors: their sizes, floating-point ones as float32, and as fixed point.
 *
 * float8 is the OCP's: e4m3 has no infinity, and one NaN, which it becomes above 448 + half a step; e5m2 is a short
 * float16.
 */
#include <math.h>
#include <string.h>

#include "vector/element.h"

const uint8_t element_bytes[ELEMENTS] = {[EL_FLOAT32] = 4, [EL_FLOAT16] = 2, [EL_BFLOAT16] = 2, [EL_INT32] = 4,
					 [EL_INT8] = 1,    [EL_UINT8] = 1,   [EL_E4M3] = 1,	[EL_E5M2] = 1};

static const struct eight_bits {
	int mantissa, bias;
	uint8_t most, beyond; /* the largest finite number, and what is larger than that */
} e4m3 = {3, 7, 0x7e, 0x7f}, e5m2 = {2, 15, 0x7b, 0x7c};

/* element_is_integer() - Whether an element is a whole number, of 32 bits at most */
bool element_is_integer(enum element e)
{
	return e == EL_INT32 || e == EL_INT8 || e == EL_UINT8;
}

/* reduction_adds() - Whether it adds numbers up: then floating-point numbers that travel as integers need a common scale */
bool reduction_adds(enum reduction how)
{
	return how == RED_SUM || how == RED_AVG;
}

/* reduction_fits() - Whether there is such a reduction of such elements: bits are combined of integers alone */
bool reduction_fits(enum reduction how, enum element e)
{
	return how < REDUCTIONS && e < ELEMENTS && (how < RED_BAND || element_is_integer(e));
}

/* element_get_int() - Integer element @i */
int32_t element_get_int(enum element e, const uint8_t *at, size_t i)
{
	int32_t x;

	if (e != EL_INT32)
		return e == EL_INT8 ? (int8_t)at[i] : at[i];
	memcpy(&x, at + 4 * i, sizeof x);
	return x;
}

/* element_put_int() - Write the low bits of @x as integer element @i */
void element_put_int(enum element e, uint8_t *at, size_t i, int32_t x)
{
	if (e == EL_INT32)
		memcpy(at + 4 * i, &x, sizeof x);
	else
		at[i] = (uint8_t)x;
}

static float of_bits(uint32_t bits)
{
	float x;

	memcpy(&x, &bits, sizeof x);
	return x;
}

static float from_half(uint16_t h)
{
	uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, mantissa = h & 1023;

	if (exponent == 31)
		return of_bits(sign | 0x7f800000 | mantissa << 13);
	if (!exponent) /* counts in the smallest steps */
		return sign ? (float)mantissa * -0x1p-24f : (float)mantissa * 0x1p-24f;
	return of_bits(sign | (exponent + 112) << 23 | mantissa << 13);
}

/* float16, rounded to even */
static uint16_t to_half(float x)
{
	uint32_t bits;

	memcpy(&bits, &x, sizeof bits);
	uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
	bits &= 0x7fffffff;
	if (bits > 0x7f800000)
		return sign | 0x7e00; /* not a number */
	if (bits >= 0x477ff000) /* 65520 and up */
		return sign | 0x7c00;
	if (bits < 0x38800000) /* below 2^-14: in the smallest steps */
		return sign | (uint16_t)lrintf(of_bits(bits) * 0x1p24f);
	bits += 0xfff + (bits >> 13 & 1);
	return sign | (uint16_t)((bits - (112u << 23)) >> 13);
}

/* bfloat16: the upper half of a float32, rounded to even */
static uint16_t to_bfloat(float x)
{
	uint32_t bits;

	memcpy(&bits, &x, sizeof bits);
	if ((bits & 0x7fffffff) > 0x7f800000)
		return (uint16_t)(bits >> 16 | 0x40); /* not a number stays one */
	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static float from_eight(const struct eight_bits *k, uint8_t b)
{
	int exponent = (b & 0x7f) >> k->mantissa, steps = b & ((1 << k->mantissa) - 1);
	float x;

	if ((b & 0x7f) > k->most)
		x = (b & 0x7f) == k->beyond && k == &e5m2 ? INFINITY : NAN;
	else
		x = ldexpf((float)(exponent ? steps + (1 << k->mantissa) : steps), (exponent ? exponent : 1) - k->bias - k->mantissa);
	return b & 0x80 ? -x : x;
}

/* float8, rounded to even */
static uint8_t to_eight(const struct eight_bits *k, float x)
{
	uint8_t sign = signbit(x) ? 0x80 : 0;
	int exponent;

	if (isnan(x))
		return sign | 0x7f;
	if (isinf(x))
		return sign | k->beyond;
	if (x == 0)
		return sign;
	frexpf(x, &exponent); /* 2^(exponent - 1) is its leading bit */
	exponent = exponent - 1 > 1 - k->bias ? exponent - 1 : 1 - k->bias;
	long steps = lrintf(ldexpf(fabsf(x), k->mantissa - exponent));
	long code = ((long)(exponent + k->bias - 1) << k->mantissa) + steps; /* a carry goes on into the exponent */
	return sign | (uint8_t)(code > k->most ? k->beyond : code);
}

/* element_get() - Floating-point element @i as float32 */
float element_get(enum element e, const uint8_t *at, size_t i)
{
	float x;
	uint16_t h;

	if (e == EL_FLOAT32) {
		memcpy(&x, at + 4 * i, sizeof x);
		return x;
	}
	if (element_bytes[e] == 1)
		return from_eight(e == EL_E4M3 ? &e4m3 : &e5m2, at[i]);
	memcpy(&h, at + 2 * i, sizeof h);
	if (e == EL_FLOAT16)
		return from_half(h);
	return of_bits((uint32_t)h << 16);
}

/* element_put() - Write float32 @x as floating-point element @i */
void element_put(enum element e, uint8_t *at, size_t i, float x)
{
	uint16_t h;

	if (e == EL_FLOAT32) {
		memcpy(at + 4 * i, &x, sizeof x);
		return;
	}
	if (element_bytes[e] == 1) {
		at[i] = to_eight(e == EL_E4M3 ? &e4m3 : &e5m2, x);
		return;
	}
	h = e == EL_FLOAT16 ? to_half(x) : to_bfloat(x);
	memcpy(at + 2 * i, &h, sizeof h);
}

/* element_exponent() - The largest binary exponent of any element: all are smaller than 2 to that power */
int element_exponent(enum element e, const uint8_t *at, size_t count)
{
	uint32_t most = 0;
	float x;
	int exponent;

	for (size_t i = 0; i < count; i++) {
		uint32_t bits;
		x = element_get(e, at, i);
		memcpy(&bits, &x, sizeof bits);
		bits &= 0x7fffffff; /* without its sign; larger numbers have larger bits, infinities and NaN the largest */
		most = bits > most ? bits : most;
	}
	if (!most)
		return EXPONENT_ZERO;
	if (most >= 0x7f800000)
		return EXPONENT_BAD;
	memcpy(&x, &most, sizeof x);
	frexpf(x, &exponent);
	return exponent;
}

/* element_to_fixed() - Elements times 2^shift, to the nearest integer; the caller knows that they fit */
void element_to_fixed(enum element e, const uint8_t *at, size_t count, int shift, int32_t *to)
{
	double scale = ldexp(1, shift);

	for (size_t i = 0; i < count; i++)
		to[i] = (int32_t)lrint((double)element_get(e, at, i) * scale);
}

/* As float32 from which every narrower type is rounded as from @x itself: what is cut off leaves the last bit odd */
static float sticky(double x)
{
	float near = (float)x;
	uint32_t bits;

	if (near == x)
		return near;
	memcpy(&bits, &near, sizeof bits);
	if (fabs(near) > fabs(x))
		bits--;
	return of_bits(bits | 1);
}

/* element_from_fixed() - The way back, divided once more, and rounded once */
void element_from_fixed(enum element e, uint8_t *at, size_t count, int shift, double divisor, const int32_t *from)
{
	double scale = ldexp(1, -shift);

	for (size_t i = 0; i < count; i++) {
		double x = from[i] * scale / divisor;
		element_put(e, at, i, e == EL_FLOAT32 ? (float)x : sticky(x));
	}
}

/* element_to_ordered() - Floating-point elements as integers of the same order, -0 below 0
 * @least:	The least of them is wanted, else the largest: what is no number becomes an integer that is that of all
 */
void element_to_ordered(enum element e, const uint8_t *at, size_t count, bool least, int32_t *to)
{
	for (size_t i = 0; i < count; i++) {
		float x = element_get(e, at, i);
		memcpy(&to[i], &x, sizeof x);
		if (isnan(x))
			to[i] = least ? INT32_MIN : INT32_MAX;
		else if (to[i] < 0)
			to[i] ^= INT32_MAX;
	}
}

/* element_from_ordered() - The way back */
void element_from_ordered(enum element e, uint8_t *at, size_t count, const int32_t *from)
{
	for (size_t i = 0; i < count; i++)
		element_put(e, at, i, of_bits((uint32_t)(from[i] < 0 ? from[i] ^ INT32_MAX : from[i])));
}
