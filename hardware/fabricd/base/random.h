/* Random numbers that follow from what they are for: nothing is drawn from a
 * stream, so a fault that comes and goes leaves every other draw as it was.
 *
 * The mixer is the finaliser of SplitMix64 (Steele, Lea, Flood 2014), once per
 * argument.
 */
#ifndef RANDOM_H
#define RANDOM_H

#include <stdint.h>

/* What a draw is for, where place and number do not tell it apart */
enum random_use { RANDOM_ECN = 1, RANDOM_LOSS, RANDOM_STATE, RANDOM_DELAY, RANDOM_BITS, RANDOM_PORT, RANDOM_ENTROPY, RANDOM_KEY };

static inline uint64_t random_mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15u;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

/* random_of() - 64 bits for a seed and up to three things that tell the draw apart */
static inline uint64_t random_of(uint64_t seed, uint64_t a, uint64_t b, uint64_t c)
{
	return random_mix(random_mix(random_mix(random_mix(seed) ^ a) ^ b) ^ c);
}

/* random_unit() - Such a number in [0, 1) */
static inline double random_unit(uint64_t seed, uint64_t a, uint64_t b, uint64_t c)
{
	return (double)(random_of(seed, a, b, c) >> 11) * 0x1p-53;
}

#endif
