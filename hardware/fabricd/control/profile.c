/* Where the process's time goes
 *
 * Theory of Operation
 *
 * From the first request on, a timer of the processor time of this thread interrupts it
 * once a millisecond of that.  The handler looks for the innermost function of the
 * program's own on the stack, so that what is done for it in libraries and in the kernel
 * counts for it, and counts its address, to 64 bytes.  Which room is at which address
 * the link map says (hardware/rooms.py).
 *
 * Where that is the kernel counts such time in ticks, samples are fewer; so they are shares.
 */
#include <execinfo.h>
#include <jansson.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "control/control.h"

#define PERIOD_NS 1000000
#define GRAIN 64 /* bytes of text with one count */
#define DEPTH 32

extern const char __executable_start, etext; /* the linker's */

static uint32_t *hits; /* NULL: not asked for yet */
static size_t grains;

static uintptr_t interrupted_at(const ucontext_t *context)
{
#if defined(__x86_64__)
	return (uintptr_t)context->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
	return (uintptr_t)context->uc_mcontext.pc;
#else
	(void)context;
	return 0;
#endif
}

static size_t grain_of(uintptr_t at)
{
	return (at - (uintptr_t)&__executable_start) / GRAIN;
}

static void on_timer(int number, siginfo_t *info, void *context)
{
	void *stack[DEPTH];
	uintptr_t at = interrupted_at(context);
	int depth = backtrace(stack, DEPTH), i = 0;

	(void)number;
	(void)info;
	while (i < depth && (uintptr_t)stack[i] != at)
		i++; /* the handler itself */
	for (; i < depth; i++)
		if (grain_of((uintptr_t)stack[i]) < grains) {
			hits[grain_of((uintptr_t)stack[i])]++;
			return;
		}
	hits[grains]++; /* somewhere else */
}

static const char *begin(void)
{
	struct sigaction act = {.sa_sigaction = on_timer, .sa_flags = SA_SIGINFO | SA_RESTART};
	struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGPROF};
	struct itimerspec every = {.it_interval.tv_nsec = PERIOD_NS, .it_value.tv_nsec = PERIOD_NS};
	void *one[1];
	timer_t timer;

	grains = grain_of((uintptr_t)&etext) + 1;
	hits = calloc(grains + 1, sizeof *hits);
	if (!hits)
		abort();
	backtrace(one, 1); /* the first time it loads a library, which a signal handler must not */
	event._sigev_un._tid = gettid();
	if (sigaction(SIGPROF, &act, NULL) || timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &timer) ||
	    timer_settime(timer, 0, &every, NULL))
		return "profile: there is no timer of processor time";
	return NULL;
}

/* profile_answer() - Begin, or say what has been counted since */
const char *profile_answer(struct fabric *f, struct control_conn *c, const json_t *request, json_t *answer)
{
	json_t *at = json_array();

	(void)f;
	(void)c;
	(void)request;
	const char *wrong = hits ? NULL : begin();
	for (size_t i = 0; !wrong && i <= grains; i++)
		if (hits[i])
			json_array_append_new(at, json_pack("[I, I]", i < grains ? (json_int_t)(i * GRAIN) : (json_int_t)-1,
							    (json_int_t)hits[i]));
	json_object_set_new(answer, "at", at);
	return wrong;
}
