/* The process's emulated clock, for our other libraries in the same process (clock.c) */
#ifndef RAILBED_CLOCK_H
#define RAILBED_CLOCK_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

uint64_t railbed_now(uint64_t cost_ps);
bool railbed_open(void);
bool railbed_lost(void);
bool railbed_emulated(void);
void railbed_wait(uint64_t until);
void railbed_happens(uint64_t until);
void railbed_outside(uint64_t until);
void railbed_masked(uint64_t until, const sigset_t *mask);
void railbed_activate(void (*how)(void));
unsigned railbed_rank(void);
uint32_t railbed_address(uint32_t rank);
bool railbed_rank_of(uint32_t address, uint32_t *rank);
uint8_t railbed_gid_index(void);

/* Is that fault its own?  It has dealt with it then (fault.c) */
typedef bool railbed_looks(siginfo_t *info, void *context);
void railbed_faults(railbed_looks *look);
bool railbed_handles(const struct sigaction *new, struct sigaction *was);
void railbed_most(sigset_t *most);

/* What our other libraries do about memory that peers may write to */
struct railbed_watch {
	void (*region)(uint64_t start, uint64_t end, bool there); /* it is such from now on, or no more */
	void (*due)(uint64_t now);				   /* what railbed_alarm named has come */
	void (*pause)(void);					   /* it is looked at and may be shared anew */
	void (*moved)(void);					   /* emulated time has gone on */
	bool (*polls)(void);					   /* has the process looked at it since? */
	void (*rest)(void);					   /* wait until no other thread runs */
};
void railbed_watch(const struct railbed_watch *how);
void railbed_alarm(uint64_t at);
bool railbed_busy(void);
uint64_t railbed_said(void);
void railbed_written(unsigned empties);

#endif
