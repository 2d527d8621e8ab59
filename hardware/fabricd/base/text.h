/* Text that is put together piece by piece, where printf() would be most of the work.
 *
 * What does not fit is left out, and from then on all else: `full` says so.
 */
#ifndef TEXT_H
#define TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct text {
	char *at;
	size_t left;
	bool full;
};

static inline void text_add(struct text *t, const char *piece, size_t bytes)
{
	t->full = t->full || bytes > t->left;
	if (t->full)
		return;
	memcpy(t->at, piece, bytes);
	t->at += bytes;
	t->left -= bytes;
}

#define TEXT_ADD(t, literal) text_add(t, literal, sizeof(literal) - 1)

static inline void text_number(struct text *t, uint64_t number)
{
	char digits[20];
	size_t first = sizeof digits;

	do {
		digits[--first] = (char)('0' + number % 10);
		number /= 10;
	} while (number);
	text_add(t, digits + first, sizeof digits - first);
}

/* The lowest digits of a number, so many */
static inline void text_hex(struct text *t, uint32_t number, unsigned digits)
{
	char text[8];

	for (unsigned i = digits; i-- > 0; number >>= 4)
		text[i] = "0123456789abcdef"[number & 15];
	text_add(t, text, digits);
}

/* A name within a JSON string, whatever is in it */
static inline void text_escaped(struct text *t, const char *name)
{
	for (; *name; name++) {
		text_add(t, "\\", *name == '"' || *name == '\\');
		text_add(t, (unsigned char)*name < ' ' ? "?" : name, 1);
	}
}

#endif
