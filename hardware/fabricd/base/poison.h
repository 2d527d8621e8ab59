/* Memory of our own that nobody uses at the moment: a build with AddressSanitizer finds who does */
#ifndef BASE_POISON_H
#define BASE_POISON_H

#include <stddef.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

static inline void poison(const void *from, size_t bytes)
{
	(void)from;
	(void)bytes;
#ifdef __SANITIZE_ADDRESS__
	__asan_poison_memory_region(from, bytes);
#endif
}

static inline void unpoison(const void *from, size_t bytes)
{
	(void)from;
	(void)bytes;
#ifdef __SANITIZE_ADDRESS__
	__asan_unpoison_memory_region(from, bytes);
#endif
}

#endif
