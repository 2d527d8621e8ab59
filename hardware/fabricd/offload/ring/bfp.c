/* Block floating point: what NICs send of float32 when it is compressed
 *
 * Theory of Operation
 *
 * 16 elements share an exponent of 8 bits; each is a signed mantissa of 8 bits.  The
 * FPGA AI NIC (Ma et al., IEEE CAL 2022) sends gradients like that; 64 bytes become 17.
 *
 * The block's exponent e is that of its largest element: max < 2^e.  Mantissas count
 * steps of 2^(e - 7) from -127 to 127, rounded to the nearest, ties to even.  So no
 * element is off by more than max / 127: half a step, at most max / 128, or, for what
 * would round to 128 steps, less than a step of a max that is more than 127 steps.
 * What is smaller than 2^-133 becomes 0.  A block with an infinity or a NaN becomes NaN.
 *
 * Bytes: exponent + 127 (0: all zeros; 255: no numbers), then the mantissas.  A
 * packet's last block may be shorter.
 */
#include <math.h>
#include <string.h>

#include "offload/ring/ring.h"

#define BIAS 127
#define BAD 255

/* bfp_bytes() - What so many elements take */
uint32_t bfp_bytes(uint32_t elements)
{
	return elements + (elements + BFP_BLOCK - 1) / BFP_BLOCK;
}

static uint8_t exponent_of(const float *from, uint32_t n)
{
	float most = 0;
	int e;

	for (uint32_t i = 0; i < n; i++) {
		if (!isfinite(from[i]))
			return BAD;
		most = fabsf(from[i]) > most ? fabsf(from[i]) : most;
	}
	if (most == 0)
		return 0;
	frexpf(most, &e);
	return e + BIAS < 1 ? 1 : (uint8_t)(e + BIAS > BAD - 1 ? BAD - 1 : e + BIAS);
}

/* bfp_encode() - Compress @n elements */
void bfp_encode(uint8_t *to, const float *from, uint32_t n)
{
	for (uint32_t at = 0; at < n; at += BFP_BLOCK) {
		uint32_t count = n - at < BFP_BLOCK ? n - at : BFP_BLOCK;
		uint8_t e = exponent_of(from + at, count);
		*to++ = e;
		for (uint32_t i = 0; i < count; i++) {
			double steps = e == 0 || e == BAD ? 0 : nearbyint(ldexp((double)from[at + i], 7 + BIAS - e));
			*to++ = (uint8_t)(int8_t)(steps > 127 ? 127 : steps < -127 ? -127 : steps);
		}
	}
}

/* bfp_decode() - Expand @n elements */
void bfp_decode(float *to, const uint8_t *from, uint32_t n)
{
	for (uint32_t at = 0; at < n; at += BFP_BLOCK) {
		uint32_t count = n - at < BFP_BLOCK ? n - at : BFP_BLOCK;
		uint8_t e = *from++;
		float step = e == BAD ? NAN : e ? ldexpf(1, e - BIAS - 7) : 0;
		for (uint32_t i = 0; i < count; i++)
			to[at + i] = step * (float)(int8_t)*from++;
	}
}
