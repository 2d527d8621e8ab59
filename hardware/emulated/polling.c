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
 *
 * Handlers of signals run in any thread, and while another is in here: none waits for what a thread may hold (take), and
 * a page of a region that faults is open afterwards whatever is known of it.  A child has none of its parent's regions, and
 * no page is guarded while it is made.
 */
#include "emulated.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
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
#define REGIONS 65536
#define PAGES 64
#define LOADS 16
#define VISITS 64
#define STACK 65536 /* for handlers, where a thread's own is polled */

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

static struct range *regions; /* that peers may write to; it stays in its place, which is none of the program's */
static size_t region_count;
static struct page pages[PAGES]; /* that are polled */
static unsigned page_count;
static _Atomic bool taken; /* all of this is looked at, or changed */
static _Atomic unsigned forks; /* under way: nothing is guarded meanwhile */
static bool guarded;   /* pages are, */
static bool searching; /* or all regions */
static struct visit visits[VISITS];
static unsigned visited;
static unsigned empties, quiet;
static uint64_t said;
static bool lenient;
static __thread uint64_t stepping; /* the page that is open for one instruction */
static __thread unsigned steps;	   /* of the timer's look, left */
static __thread struct visit began;
static struct sigaction others; /* for SIGTRAP */

static bool take(void)
{
	return !atomic_exchange(&taken, true);
}

static void hold(void)
{
	while (!take())
		sched_yield();
}

static void let_go(void)
{
	taken = false;
}

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
}

static void guard_pages(void)
{
	if (forks)
		return;
	for (unsigned i = 0; i < page_count; i++)
		protect(pages[i].start, pages[i].start + PAGE, false);
	guarded = page_count;
}

/* polling_pause() - The kernel, or we, may use all memory */
void polling_pause(void)
{
	hold();
	open_all();
	let_go();
}

static void moved(void)
{
	hold();
	visited = 0;
	if (!guarded && !searching && page_count)
		guard_pages();
	let_go();
}

static bool is_region(uint64_t at)
{
	for (size_t i = 0; i < region_count; i++)
		if (at >= regions[i].start && at < regions[i].end)
			return true;
	return false;
}

/* A thread that polls its own stack has its handlers elsewhere */
static void have_stack(uint64_t start, uint64_t end)
{
	uint64_t here = (uint64_t)(uintptr_t)__builtin_frame_address(0);
	stack_t is;

	if (here + PAGE < start || here >= end + (8 << 20) || sigaltstack(NULL, &is) || !(is.ss_flags & SS_DISABLE))
		return;
	long at = syscall(SYS_mmap, NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, (off_t)0);
	if (at != -1)
		sigaltstack(&(stack_t){.ss_sp = (void *)at, .ss_size = STACK}, NULL);
}

static void forget(uint64_t start, uint64_t end)
{
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

static void region(uint64_t start, uint64_t end, bool there)
{
	if (there)
		have_stack(start, end);
	hold();
	open_all();
	if (!there)
		forget(start, end);
	else if (regions && region_count < REGIONS) /* else it is not found that this is polled */
		regions[region_count++] = (struct range){start, end};
	let_go();
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

static void open_at(uint64_t at)
{
	protect(at & ~(PAGE - 1), (at & ~(PAGE - 1)) + PAGE, true);
}

/* A fault: was it because of a guard? */
static bool polling_fault(siginfo_t *info, void *context)
{
	uint64_t at = (uint64_t)(uintptr_t)info->si_addr;
	ucontext_t *c = context;

	if (info->si_code != SEGV_ACCERR || !region_count || (!page_of(at) && !is_region(at)))
		return false;
	struct visit v = visit_of(c, at);
	if (!take()) {
		open_at(at);
		return true;
	}
	struct page *p = page_of(at);
	bool busy = railbed_busy(), repeats = !busy && again(&v);
	bool known = p && is_known(p, v.at);
	if (busy || visited == VISITS || locks(v.at) || (!searching && !known && !repeats)) {
		open_all();
		open_at(at);
		let_go();
		return true;
	}
	if (repeats) {
		found(at);
		unsigned so_far = empties++;
		let_go();
		railbed_written(so_far);
		hold();
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
	open_at(at);
	let_go();
	step(c, true);
	return true;
}

static void guard_regions(void)
{
	if (forks)
		return;
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
	if (same(&v, &began) && take()) {
		guard_regions();
		let_go();
	}
}

static void on_step(int number, siginfo_t *info, void *context)
{
	ucontext_t *c = context;

	if (!steps)
		step(c, false);
	if (stepping) {
		if (take()) {
			if (guarded || searching)
				protect(stepping, stepping + PAGE, false);
			let_go();
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
		guard_regions();
	return !lenient;
}

static void on_tick(int number, siginfo_t *info, void *context)
{
	ucontext_t *c = context;

	(void)number;
	(void)info;
	if (!region_count || railbed_busy() || searching || stepping || !take())
		return;
	bool looks = is_quiet();
	let_go();
	if (!looks || steps) /* it may sleep, and another thread poll: that is found when all regions are guarded */
		return;
	began = visit_of(c, 0);
	steps = STEPS;
	step(c, true);
}

static void before_fork(void)
{
	hold();
	forks++;
	open_all();
	let_go();
}

static void in_parent(void)
{
	forks--;
}

static void in_child(void)
{
	taken = false;
	forks = 0;
	region_count = page_count = visited = steps = 0;
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
	static const struct railbed_watch watch = {.region = region, .pause = polling_pause, .moved = moved, .polls = polls, .due = timers_due, .rest = threads_rest};
	struct sigaction tick = {.sa_sigaction = on_tick, .sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK};
	struct sigaction trap = {.sa_sigaction = on_step, .sa_flags = SA_SIGINFO | SA_ONSTACK};
	struct sigevent e = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMAX};
	struct itimerspec every = {.it_interval.tv_nsec = TICK_NS, .it_value.tv_nsec = TICK_NS};
	timer_t timer;

	sigaddset(&tick.sa_mask, SIGTRAP);
	sigaddset(&trap.sa_mask, SIGRTMAX);
	if (!regions) { /* else a parent has done it */
		long at = syscall(SYS_mmap, NULL, REGIONS * sizeof *regions, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, (off_t)0);
		regions = at == -1 ? NULL : (struct range *)at;
		sigaction(SIGRTMAX, &tick, NULL);
		sigaction(SIGTRAP, &trap, &others);
		pthread_atfork(before_fork, in_parent, in_child);
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
