/* Memory that a program polls: it waits until a peer has written there
 *
 * Theory of Operation
 *
 * A program that looks for a byte to change says nothing to anybody, and would look for ever: fabricd's clock does not
 * pass its own while it runs.  So the page that it polls cannot be read after each wait (it is "guarded").  Reading it
 * faults; the one instruction is carried out by single step, and the page guarded again.  When the program comes to the
 * same instruction with the same registers for the second time, nothing but what a peer writes will let it go on: there
 * it waits, until all of a message is there.  So it goes on at the emulated time at which the bytes came, and all that it
 * measures repeats.
 *
 * Which page that is is found once.  A timer of CPU time looks whether the process has said nothing since, and steps
 * through what it does: if its registers are the same again, or after long, all memory that peers may write to is
 * guarded, and the page that faults twice alike is the one.  When the timer comes does not matter: what the program does
 * meanwhile takes no emulated time.
 *
 * A guard is taken off as soon as the page is used by anything but a load that was seen there before, by one that locks
 * (behind which a futex may follow), and before calls that hand memory to the kernel (guards.c).
 *
 * Handlers of signals run in any thread, and while another is in here: a page of a region that faults is open afterwards
 * whatever is known of it.
 */
#include "emulated.h"
#include "guards.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>

#if defined(__x86_64__)
#define TRAP_FLAG 0x100
#define TICK_NS 4000000 /* of CPU time */
#define STEPS 512	/* a loop that polls is shorter */
#define PATIENT 16	/* ticks, after which registers may differ */
#define VISITS 64

struct visit {
	uint64_t at, address, registers;
};

static struct visit visits[VISITS];
static unsigned visited;
static unsigned empties, quiet;
static uint64_t said;
static bool lenient;
static __thread uint64_t stepping; /* the page that is open for one instruction */
static __thread unsigned steps;	   /* of the timer's look, left */
static __thread struct visit began;
static struct sigaction others; /* for SIGTRAP */

/* polling_pause() - The kernel, or we, may use all memory */
void polling_pause(void)
{
	if (!guards_are_on())
		return;
	guards_hold();
	guards_off();
	guards_let_go();
}

static void moved(void)
{
	guards_hold();
	visited = 0;
	guards_on();
	guards_let_go();
}

static bool polls(void)
{
	return visited;
}

static struct visit visit_of(const ucontext_t *c, uint64_t address)
{
	const greg_t *r = c->uc_mcontext.gregs;
	struct visit v = {.at = (uint64_t)r[REG_RIP], .address = address, .registers = 14695981039346656037ull};

	for (int i = REG_R8; i <= REG_RSP; i++)
		v.registers = (v.registers ^ (uint64_t)r[i]) * 1099511628211ull;
	return v;
}

static bool same(const struct visit *a, const struct visit *b)
{
	return a->at == b->at && a->address == b->address && (lenient || a->registers == b->registers);
}

/* Has it been there since time went on? */
static bool again(const struct visit *v)
{
	for (unsigned i = 0; i < visited; i++)
		if (same(&visits[i], v))
			return true;
	if (visited < VISITS)
		visits[visited++] = *v;
	return false;
}

static void step(ucontext_t *c, bool on)
{
	greg_t *flags = &c->uc_mcontext.gregs[REG_EFL];

	*flags = on ? *flags | TRAP_FLAG : *flags & ~TRAP_FLAG;
}

static bool locks(uint64_t at)
{
	const uint8_t *code = (const uint8_t *)at;

	return code[0] == 0xf0 || code[0] == 0x86 || code[0] == 0x87 || ((code[0] & 0xf0) == 0x40 && (code[1] == 0x86 || code[1] == 0x87));
}

/* A fault: was it because of a guard? */
static bool polling_fault(siginfo_t *info, void *context)
{
	uint64_t at = (uint64_t)(uintptr_t)info->si_addr;
	ucontext_t *c = context;

	if (info->si_code != SEGV_ACCERR || !guards_any() || !guards_cover(at))
		return false;
	struct visit v = visit_of(c, at);
	if (!guards_take()) {
		guards_open(at);
		return true;
	}
	struct page *p = guards_page(at);
	bool busy = railbed_busy(), repeats = !busy && again(&v);
	bool known = p && guards_known(p, v.at);
	if (busy || visited == VISITS || locks(v.at) || (!guards_search() && !known && !repeats)) {
		guards_off();
		guards_open(at);
		guards_let_go();
		return true;
	}
	if (repeats) {
		guards_found(at);
		quiet = 0;
		unsigned so_far = empties++;
		guards_let_go();
		railbed_written(so_far);
		guards_hold();
		visited = 0;
		again(&v);
		guards_on();
		p = guards_page(at);
		if (p)
			guards_known(p, v.at);
	} else {
		empties = 0;
	}
	stepping = at & ~(PAGE - 1);
	guards_open(at);
	guards_let_go();
	step(c, true);
	return true;
}

static void search(void)
{
	if (guards_everywhere())
		visited = 0;
}

/* The timer's look: after each instruction, is all as it was in the beginning? */
static void look(ucontext_t *c)
{
	struct visit v = visit_of(c, 0);

	steps--;
	if (steps && !same(&v, &began))
		return;
	steps = 0;
	step(c, false);
	if (same(&v, &began) && guards_take()) {
		search();
		guards_let_go();
	}
}

static void on_step(int number, siginfo_t *info, void *context)
{
	ucontext_t *c = context;

	if (!steps)
		step(c, false);
	if (stepping) {
		if (guards_take()) {
			guards_close(stepping);
			guards_let_go();
		}
		stepping = 0;
		steps = 0; /* the timer has looked within a fault */
		step(c, false);
	} else if (steps) {
		look(c);
	} else if (others.sa_flags & SA_SIGINFO && others.sa_sigaction) {
		others.sa_sigaction(number, info, context);
	} else if (others.sa_handler != SIG_DFL && others.sa_handler != SIG_IGN) {
		others.sa_handler(number);
	} else if (info->si_code != TRAP_TRACE) {
		signal(number, SIG_DFL); /* none of ours: it ends the program */
		raise(number);
	}
}

/* Has the process said nothing since?  Then what it does is looked at, after long all regions are guarded at once */
static bool is_quiet(void)
{
	if (said != railbed_said()) {
		said = railbed_said();
		quiet = 0;
		return false;
	}
	quiet++;
	lenient = quiet >= PATIENT;
	if (lenient)
		search();
	return !lenient;
}

static void on_tick(int number, siginfo_t *info, void *context)
{
	ucontext_t *c = context;

	(void)number;
	(void)info;
	if (!guards_any() || railbed_busy() || guards_search() || stepping || !guards_take())
		return;
	bool looks = is_quiet();
	guards_let_go();
	if (!looks || steps) /* it may sleep, and another thread poll: that is found when all regions are guarded */
		return;
	began = visit_of(c, 0);
	steps = STEPS;
	step(c, true);
}

static void in_child(void)
{
	visited = steps = 0;
	stepping = 0;
}

/* Streams are written out when the process ends */
__attribute__((destructor)) static void end(void)
{
	polling_pause();
}

/* polling_begin() - The process has the virtual clock from now on */
void polling_begin(void)
{
	static const struct railbed_watch watch = {.region = guards_region, .pause = polling_pause, .moved = moved, .polls = polls, .due = timers_due, .rest = threads_rest};
	struct sigaction tick = {.sa_sigaction = on_tick, .sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK};
	struct sigaction trap = {.sa_sigaction = on_step, .sa_flags = SA_SIGINFO | SA_ONSTACK};
	struct sigevent e = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMAX};
	struct itimerspec every = {.it_interval.tv_nsec = TICK_NS, .it_value.tv_nsec = TICK_NS};
	timer_t timer;

	sigaddset(&tick.sa_mask, SIGTRAP);
	sigaddset(&trap.sa_mask, SIGRTMAX);
	if (guards_begin()) { /* else a parent has done it */
		sigaction(SIGRTMAX, &tick, NULL);
		sigaction(SIGTRAP, &trap, &others);
		pthread_atfork(NULL, NULL, in_child);
	}
	railbed_faults(polling_fault);
	railbed_watch(&watch);
	if (!timer_create(CLOCK_PROCESS_CPUTIME_ID, &e, &timer))
		timer_settime(timer, 0, &every, NULL);
}
#else
void polling_pause(void)
{
}

void polling_begin(void)
{
}
#endif

/* polling_quiet() - This thread is in a call that any signal would end: ours does not come, until polling_heard */
void polling_quiet(sigset_t *were)
{
	sigset_t ours;

	sigemptyset(&ours);
	sigaddset(&ours, SIGRTMAX);
	pthread_sigmask(SIG_BLOCK, &ours, were);
}

void polling_heard(const sigset_t *were)
{
	int was = errno;

	pthread_sigmask(SIG_SETMASK, were, NULL);
	errno = was;
}
