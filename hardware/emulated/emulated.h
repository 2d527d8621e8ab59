/* What the files of this library share
 *
 * Preloaded where the fabric has the virtual clock: a program's clocks, its sleeping and its TCP sockets become
 * emulated.  Nothing of that begins before the program uses its NIC or a socket: then its session with fabricd is
 * opened (../verbs/session.c), and its clock is the session's.
 */
#ifndef EMULATED_H
#define EMULATED_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "clock.h"

#define PS_PER_NS 1000ull
#define PS_PER_S 1000000000000ull
#define READ_PS 25000ull     /* what reading a clock takes: loops that wait for a time come to an end */
#define COUNTER_PS 10000ull  /* likewise the time-stamp counter */
#define LATENCY_PS 50000000ull /* of the management network */
#define STEP_PS 49000000ull  /* who waits for a message looks again after this: none can come sooner */
#define APART_PS (LATENCY_PS - STEP_PS) /* no two programs' clocks are further apart */

/* counter.c */
void counter_trap(void);

/* timers.c */
void timers_due(uint64_t now);
bool timers_readable(int fd);
bool timers_descriptor(int fd);
void timers_forget(int fd);
void timers_plan(void);

/* threads.c */
void threads_rest(void);
bool threads_awakes(int id);
bool threads_signalled(int id, const sigset_t *blocked);

/* limits.c */
uint64_t limits_first(void);
bool limits_due(uint64_t now);
bool limits_wake(void);

/* polling.c */
void polling_pause(void);
/* A call of the kernel's that is handed memory of the program's */
#define KERNEL(...) (polling_pause(), syscall(__VA_ARGS__))
void polling_begin(void);
void polling_quiet(sigset_t *were);
void polling_heard(const sigset_t *were);

/* clock.c */
void clock_begins(void);
struct timespec clock_at(uint64_t ps, clockid_t id);
uint64_t clock_until(clockid_t id, const struct timespec *t);

/* waiting.c */
void waiting_forget(int fd);
void waiting_sleep(uint64_t ps);

/* network.c */
bool network_ours(int fd);
int network_ready(int fd, uint64_t now, uint64_t *next);
short network_events(int fd, uint64_t now, uint64_t *next);

#endif
