/* Copies that another processor carries out (copies.c) */
#ifndef BASE_COPIES_H
#define BASE_COPIES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How many were entered, and how many of them are made; only whoever enters them may look at the first */
extern uint64_t copies_entered;
extern _Atomic uint64_t copies_made;

bool copies_start(void);
bool copies_taken(void);
void copies_make(uint8_t *to, const uint8_t *from, uint32_t bytes);
void copies_add(uint8_t *to, const uint8_t *from, uint32_t bytes);
void copies_wait(void);

/* copies_settle() - All that was entered is in place from here on
 *
 * To be called before anybody else looks at that memory, or changes it, or is told that he may.
 */
static inline void copies_settle(void)
{
	if (atomic_load_explicit(&copies_made, memory_order_acquire) != copies_entered)
		copies_wait();
}

#endif
