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
 * The kernel may not read guarded pages either.  So a guard is taken off as soon as the page is used by anything but a
 * load that was seen there before, by one that locks (behind which a futex may follow), and before calls that hand
 * memory to the kernel.
 */
#include "emulated.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>

#if defined(__x86_64__)
#define PAGE 4096ull
#define TRAP_FLAG 0x100
#define TICK_NS 4000000 /* of CPU time */
#define STEPS 512	/* a loop that polls is shorter */
#define PATIENT 16	/* ticks, after which registers may differ */
#define PAGES 64
#define LOADS 16
#define VISITS 64

struct range {
	uint64_t start, end;
};
struct visit {
	uint64_t at, address, registers;
};
struct page {
	uint64_t start, loads[LOADS]; /* instructions that have been seen to use it */
	unsigned seen;
};

static struct range *regions; /* that peers may write to */
static size_t region_count;
static struct page pages[PAGES]; /* that are polled */
static unsigned page_count;
static bool guarded;   /* pages are, */
static bool searching; /* or all regions */
static struct visit visits[VISITS];
static unsigned visited;
static unsigned empties, quiet;
static uint64_t said;
static bool lenient;
static uint64_t stepping; /* the page that is open for one instruction */
static unsigned steps;	  /* of the timer's look, left */
static struct visit began;
static struct sigaction others; /* for SIGTRAP */

static void protect(uint64_t start, uint64_t end, bool off)
{
	syscall(SYS_mprotect, start, end - start, off ? PROT_READ | PROT_WRITE : PROT_NONE); /* no hook of the program's */
}

static void open_all(void)
{
	for (size_t i = 0; searching && i < region_count; i++)
		protect(regions[i].start, regions[i].end, true);
	for (unsigned i = 0; guarded && i < page_count; i++)
		protect(pages[i].start, pages[i].start + PAGE, true);
	searching = guarded = false;
	stepping = 0;
}

static void guard_pages(void)
{
	for (unsigned i = 0; i < page_count; i++)
		protect(pages[i].start, pages[i].start + PAGE, false);
	guarded = page_count;
}

/* polling_pause() - The kernel, or we, may use all memory */
void polling_pause(void)
{
	if (guarded || searching)
		open_all();
}

static void moved(void)
{
	visited = 0;
	if (!guarded && !searching && page_count)
		guard_pages();
}

static bool is_region(uint64_t at)
{
	for (size_t i = 0; i < region_count; i++)
		if (at >= regions[i].start && at < regions[i].end)
			return true;
	return false;
}

static void region(uint64_t start, uint64_t end, bool there)
{
	polling_pause();
	if (there) {
		struct range *more = realloc(regions, (region_count + 1) * sizeof *more);
		if (!more)
			return; /* then it is not found that this is polled */
		regions = more;
		regions[region_count++] = (struct range){start, end};
		return;
	}
	for (size_t i = 0; i < region_count; i++) {
		if (regions[i].start != start || regions[i].end != end)
			continue;
		regions[i] = regions[--region_count];
		for (unsigned k = page_count; k-- > 0;)
			if (!is_region(pages[k].start))
				pages[k] = pages[--page_count];
		return;
	}
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

static struct page *page_of(uint64_t at)
{
	for (unsigned i = 0; i < page_count; i++)
		if (at - pages[i].start < PAGE)
			return &pages[i];
	return NULL;
}

/* Is it a load that was seen on that page before?  If not, it will have been */
static bool is_known(struct page *p, uint64_t at)
{
	for (unsigned i = 0; i < p->seen; i++)
		if (p->loads[i] == at)
			return true;
	if (p->seen < LOADS)
		p->loads[p->seen++] = at;
	return false;
}

static void found(uint64_t at)
{
	struct page *p = page_of(at);

	open_all();
	if (!p && page_count < PAGES) {
		p = &pages[page_count++];
		*p = (struct page){.start = at & ~(PAGE - 1)};
	}
	quiet = 0;
}

/* polling_fault() - A fault: was it because of a guard? */
bool polling_fault(siginfo_t *info, void *context)
{
	uint64_t at = (uint64_t)(uintptr_t)info->si_addr;
	ucontext_t *c = context;

	if (info->si_code != SEGV_ACCERR || !region_count)
		return false;
	struct page *p = page_of(at);
	if (!p && !is_region(at))
		return false;
	struct visit v = visit_of(c, at);
	bool busy = railbed_busy(), repeats = !busy && again(&v);
	bool known = p && is_known(p, v.at);
	if (busy || visited == VISITS || locks(v.at) || (!searching && !known && !repeats)) {
		open_all();
		return true;
	}
	if (repeats) {
		found(at);
		railbed_written(empties++);
		visited = 0;
		again(&v);
		if (!guarded)
			guard_pages();
		p = page_of(at);
		if (p)
			is_known(p, v.at);
	} else {
		empties = 0;
	}
	stepping = at & ~(PAGE - 1);
	protect(stepping, stepping + PAGE, true);
	step(c, true);
	return true;
}

static void guard_regions(void)
{
	open_all();
	for (size_t i = 0; i < region_count; i++)
		protect(regions[i].start, regions[i].end, false);
	searching = true;
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
	if (same(&v, &began))
		guard_regions();
}

static void on_step(int number, siginfo_t *info, void *context)
{
	ucontext_t *c = context;

	if (stepping) {
		protect(stepping, stepping + PAGE, !(guarded || searching));
		stepping = 0;
		steps = 0; /* the timer has looked within a fault */
		step(c, false);
	} else if (steps) {
		look(c);
	} else if (others.sa_flags & SA_SIGINFO && others.sa_sigaction) {
		others.sa_sigaction(number, info, context);
	} else if (others.sa_handler != SIG_DFL && others.sa_handler != SIG_IGN) {
		others.sa_handler(number);
	}
}

static void on_tick(int number, siginfo_t *info, void *context)
{
	ucontext_t *c = context;

	(void)number;
	(void)info;
	if (!region_count || railbed_busy() || searching || stepping || steps)
		return;
	if (said != railbed_said()) {
		said = railbed_said();
		quiet = 0;
		return;
	}
	quiet++;
	lenient = quiet >= PATIENT;
	if (lenient) {
		guard_regions();
		return;
	}
	began = visit_of(c, 0);
	steps = STEPS;
	step(c, true);
}

/* polling_begin() - The process has the virtual clock from now on */
void polling_begin(void)
{
	static const struct railbed_watch watch = {.region = region, .pause = polling_pause, .moved = moved, .polls = polls, .due = timers_due, .rest = threads_rest};
	struct sigaction tick = {.sa_sigaction = on_tick, .sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK};
	struct sigaction trap = {.sa_sigaction = on_step, .sa_flags = SA_SIGINFO | SA_ONSTACK};
	struct sigevent e = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMAX};
	struct itimerspec every = {.it_interval.tv_nsec = TICK_NS, .it_value.tv_nsec = TICK_NS};
	timer_t timer;

	sigaddset(&tick.sa_mask, SIGTRAP);
	sigaddset(&trap.sa_mask, SIGRTMAX);
	sigaction(SIGRTMAX, &tick, NULL);
	sigaction(SIGTRAP, &trap, &others);
	railbed_watch(&watch);
	if (!timer_create(CLOCK_PROCESS_CPUTIME_ID, &e, &timer))
		timer_settime(timer, 0, &every, NULL);
}
#else
bool polling_fault(siginfo_t *info, void *context)
{
	(void)info, (void)context;
	return false;
}

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
