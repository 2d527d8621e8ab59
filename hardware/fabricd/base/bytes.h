/* Bounds-checked access to bytes that came from outside.
 *
 * A `struct view` is a window onto a packet or message.  Every get_ function
 * checks the window first; once one read has failed, `bad` stays set and all
 * later reads give 0, so that a parser may read a whole header and check once.
 */
#ifndef BYTES_H
#define BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct view {
	const uint8_t *p;
	size_t left;
	bool bad;
};

static inline struct view view_of(const void *p, size_t n)
{
	return (struct view){.p = p, .left = n, .bad = false};
}

/* view_take() - The next @n bytes, or NULL (and bad) if there are fewer */
static inline const uint8_t *view_take(struct view *v, size_t n)
{
	if (v->bad || v->left < n) {
		v->bad = true;
		return NULL;
	}
	const uint8_t *p = v->p;
	v->p += n;
	v->left -= n;
	return p;
}

static inline uint8_t get_u8(struct view *v)
{
	const uint8_t *p = view_take(v, 1);
	return p ? p[0] : 0;
}

static inline uint16_t get_be16(struct view *v)
{
	const uint8_t *p = view_take(v, 2);
	return p ? (uint16_t)(p[0] << 8 | p[1]) : 0;
}

static inline uint32_t get_be24(struct view *v)
{
	const uint8_t *p = view_take(v, 3);
	return p ? (uint32_t)p[0] << 16 | (uint32_t)p[1] << 8 | p[2] : 0;
}

static inline uint32_t get_be32(struct view *v)
{
	const uint8_t *p = view_take(v, 4);
	return p ? (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3] : 0;
}

static inline uint64_t get_be64(struct view *v)
{
	uint64_t high = get_be32(v);
	return high << 32 | get_be32(v);
}

static inline uint16_t get_le16(struct view *v)
{
	const uint8_t *p = view_take(v, 2);
	return p ? (uint16_t)(p[1] << 8 | p[0]) : 0;
}

static inline uint32_t get_le32(struct view *v)
{
	const uint8_t *p = view_take(v, 4);
	return p ? (uint32_t)p[3] << 24 | (uint32_t)p[2] << 16 | (uint32_t)p[1] << 8 | p[0] : 0;
}

static inline uint64_t get_le64(struct view *v)
{
	uint64_t low = get_le32(v);
	return (uint64_t)get_le32(v) << 32 | low;
}

/* put_ functions write at @p and return the place behind: the caller owns the room */
static inline uint8_t *put_u8(uint8_t *p, uint8_t x)
{
	*p = x;
	return p + 1;
}

static inline uint8_t *put_be16(uint8_t *p, uint16_t x)
{
	p[0] = (uint8_t)(x >> 8);
	p[1] = (uint8_t)x;
	return p + 2;
}

static inline uint8_t *put_be24(uint8_t *p, uint32_t x)
{
	p[0] = (uint8_t)(x >> 16);
	return put_be16(p + 1, (uint16_t)x);
}

static inline uint8_t *put_be32(uint8_t *p, uint32_t x)
{
	return put_be16(put_be16(p, (uint16_t)(x >> 16)), (uint16_t)x);
}

static inline uint8_t *put_be64(uint8_t *p, uint64_t x)
{
	return put_be32(put_be32(p, (uint32_t)(x >> 32)), (uint32_t)x);
}

static inline uint8_t *put_le16(uint8_t *p, uint16_t x)
{
	p[0] = (uint8_t)x;
	p[1] = (uint8_t)(x >> 8);
	return p + 2;
}

static inline uint8_t *put_le32(uint8_t *p, uint32_t x)
{
	return put_le16(put_le16(p, (uint16_t)x), (uint16_t)(x >> 16));
}

static inline uint8_t *put_le64(uint8_t *p, uint64_t x)
{
	return put_le32(put_le32(p, (uint32_t)x), (uint32_t)(x >> 32));
}

#endif
