/* Memory that is guarded because it is polled (guards.c); all but guards_hold() and guards_region() only between
 * guards_take() and guards_let_go(), or to look at a guess
 */
#ifndef GUARDS_H
#define GUARDS_H

#include <stdbool.h>
#include <stdint.h>

#define PAGE 4096ull
#define LOADS 16

struct page {
	uint64_t start, loads[LOADS]; /* instructions that have been seen to use it */
	unsigned seen;
};

bool guards_begin(void);
bool guards_take(void);
void guards_hold(void);
void guards_let_go(void);
void guards_region(uint64_t start, uint64_t end, bool there);
bool guards_any(void);
bool guards_cover(uint64_t at);
bool guards_are_on(void);
void guards_off(void);
void guards_on(void);
bool guards_everywhere(void);
bool guards_search(void);
struct page *guards_page(uint64_t at);
bool guards_known(struct page *p, uint64_t at);
void guards_found(uint64_t at);
void guards_open(uint64_t at);
void guards_close(uint64_t start);

#endif
