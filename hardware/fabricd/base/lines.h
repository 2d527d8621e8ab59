/* Memory that begins with a cache line: what is used together, and stands within one, is brought near at once */
#ifndef BASE_LINES_H
#define BASE_LINES_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define LINE_BYTES 64

/* lines_new() - As calloc(), for a type whose alignment is a line; free() takes it */
static inline void *lines_new(size_t n, size_t each)
{
	size_t bytes = (n * each + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES;
	void *new = aligned_alloc(LINE_BYTES, bytes);

	return new ? memset(new, 0, bytes) : NULL;
}

/* line_near() - Ask for a line; whoever looks at it soon need not wait
 *
 * A compiler takes a function that does nothing but __builtin_prefetch() for one without effect, and leaves out its
 * calls (GCC 12).  The empty statement keeps them.
 */
static inline void line_near(const void *at)
{
	__builtin_prefetch(at, 1);
	__asm__ volatile("" : : "r"(at));
}

/* lines_near() - Likewise for so many lines; nothing has to be there */
static inline void lines_near(const void *at, int lines)
{
	for (int i = 0; i < lines; i++)
		line_near((const void *)((uintptr_t)at + (uintptr_t)i * LINE_BYTES));
}

#endif
