/* What ranks do with every element of their vectors, as a library for their Python (workloads/base/native.py).
 *
 * numpy knows no bfloat16: what ml_dtypes adds to it takes the elements one by one.  Ranks do without this library
 * where it is not built or cannot be loaded; results are the same.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Compiled for what processors of a kind have in common, and for more, where the loader can choose.  x86-64-v4 is
 * AVX-512 with what narrows a vector in one instruction: sums in a cache take a third less time.  GCC 12 knows the name.
 */
#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__clang__)
#if __GNUC__ >= 12
#define WIDE __attribute__((target_clones("arch=x86-64-v4", "avx2", "default")))
#else
#define WIDE __attribute__((target_clones("avx2", "default")))
#endif
#else
#define WIDE
#endif

void add_bfloat16(uint16_t *restrict ours, const uint16_t *restrict theirs, size_t count);
bool repeats(const uint8_t *data, size_t bytes, const uint8_t *period, size_t period_bytes);

static float widened(uint16_t half)
{
	uint32_t bits = (uint32_t)half << 16;
	float x;

	memcpy(&x, &bits, sizeof x);
	return x;
}

/* To the nearest, ties to even; what is no number stays none */
static uint16_t rounded(float x)
{
	uint32_t bits;

	memcpy(&bits, &x, sizeof bits);
	uint32_t up = (bits + 0x7fff + (bits >> 16 & 1)) >> 16, none = bits >> 16 | 0x40;
	return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? none : up);
}

/* add_bfloat16() - Add @theirs to @ours */
WIDE void add_bfloat16(uint16_t *restrict ours, const uint16_t *restrict theirs, size_t count)
{
	for (size_t i = 0; i < count; i++)
		ours[i] = rounded(widened(ours[i]) + widened(theirs[i]));
}

/* Sums of what C has a type for; of integers they go round */
#define ADD(name, type)                                                                            \
	void add_##name(type *restrict ours, const type *restrict theirs, size_t count);           \
	WIDE void add_##name(type *restrict ours, const type *restrict theirs, size_t count)       \
	{                                                                                          \
		for (size_t i = 0; i < count; i++)                                                 \
			ours[i] = (type)(ours[i] + theirs[i]);                                     \
	}

ADD(float32, float)
ADD(float64, double)
ADD(int8, uint8_t)
ADD(int32, uint32_t)
ADD(int64, uint64_t)

/* repeats() - Is it @period, again and again, to the end of @data? */
bool repeats(const uint8_t *data, size_t bytes, const uint8_t *period, size_t period_bytes)
{
	for (size_t at = 0; at < bytes; at += period_bytes)
		if (memcmp(data + at, period, bytes - at < period_bytes ? bytes - at : period_bytes) != 0)
			return false;
	return true;
}
