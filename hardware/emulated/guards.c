/* Guards: which memory of a program is polled, and may not be read before that is known (polling.c)
 *
 * Guarded are the pages that are known to be polled, or, while such a one is searched for, all regions that peers may write
 * to.  The kernel may not read them either.
 *
 * No handler of signals comes while somebody has them (guards_take): it may hand memory to the kernel, and would wait for its
 * own thread.  A child has none of its parent's regions, and no page is guarded while it is made.
 */
#include "emulated.h"
#include "guards.h"

#if defined(__x86_64__)
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SIGSET_BYTES 8 /* of the kernel's */
#define REGIONS 65536
#define PAGES 64
#define STACK 65536 /* for handlers, where a thread's own is polled */

struct range {
	uint64_t start, end;
};

static struct range *regions; /* that peers may write to; it stays in its place, which is none of the program's */
static size_t region_count;
static struct page pages[PAGES]; /* that are polled */
static unsigned page_count;
static _Atomic bool taken; /* all of this is looked at, or changed */
static _Atomic unsigned forks; /* under way: nothing is guarded meanwhile */
static _Atomic bool guarded;   /* pages are, */
static _Atomic bool searching; /* or all regions */

static __thread sigset_t were; /* the signals that were blocked before */

/* guards_take() - Nobody else looks at them or changes them; false: somebody does */
bool guards_take(void)
{
	sigset_t most, before;

	railbed_most(&most);
	syscall(SYS_rt_sigprocmask, SIG_BLOCK, &most, &before, SIGSET_BYTES);
	if (atomic_exchange(&taken, true)) {
		syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before, NULL, SIGSET_BYTES);
		return false;
	}
	were = before;
	return true;
}

/* guards_hold() - Likewise, as soon as nobody else does */
void guards_hold(void)
{
	while (!guards_take())
		sched_yield();
}

void guards_let_go(void)
{
	sigset_t before = were;

	taken = false;
	syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before, NULL, SIGSET_BYTES);
}

static void protect(uint64_t start, uint64_t end, bool off)
{
	syscall(SYS_mprotect, start, end - start, off ? PROT_READ | PROT_WRITE : PROT_NONE); /* no hook of the program's */
}

/* guards_are_on() - Is any? */
bool guards_are_on(void)
{
	return guarded || searching;
}

/* guards_off() - All memory may be read */
void guards_off(void)
{
	for (size_t i = 0; searching && i < region_count; i++)
		protect(regions[i].start, regions[i].end, true);
	for (unsigned i = 0; guarded && i < page_count; i++)
		protect(pages[i].start, pages[i].start + PAGE, true);
	searching = guarded = false;
}

/* guards_on() - The pages that are polled are guarded, unless anything is */
void guards_on(void)
{
	if (forks || guarded || searching)
		return;
	guarded = page_count;
	for (unsigned i = 0; i < page_count; i++)
		protect(pages[i].start, pages[i].start + PAGE, false);
}

/* guards_everywhere() - All regions are */
bool guards_everywhere(void)
{
	if (forks)
		return false;
	guards_off();
	searching = true;
	for (size_t i = 0; i < region_count; i++)
		protect(regions[i].start, regions[i].end, false);
	return true;
}

bool guards_search(void)
{
	return searching;
}

/* guards_any() - Is there anything that peers may write to? */
bool guards_any(void)
{
	return region_count;
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

/* guards_region() - Peers may write there, or no more */
void guards_region(uint64_t start, uint64_t end, bool there)
{
	if (there)
		have_stack(start, end);
	guards_hold();
	guards_off();
	if (!there)
		forget(start, end);
	else if (regions && region_count < REGIONS) /* else it is not found that this is polled */
		regions[region_count++] = (struct range){start, end};
	guards_let_go();
}

/* guards_page() - The page there that is polled, or NULL */
struct page *guards_page(uint64_t at)
{
	for (unsigned i = 0; i < page_count; i++)
		if (at - pages[i].start < PAGE)
			return &pages[i];
	return NULL;
}

/* guards_known() - Is it a load that was seen on that page before?  If not, it will have been */
bool guards_known(struct page *p, uint64_t at)
{
	for (unsigned i = 0; i < p->seen; i++)
		if (p->loads[i] == at)
			return true;
	if (p->seen < LOADS)
		p->loads[p->seen++] = at;
	return false;
}

/* guards_found() - That page is polled */
void guards_found(uint64_t at)
{
	struct page *p = guards_page(at);

	guards_off();
	if (!p && page_count < PAGES) {
		p = &pages[page_count++];
		*p = (struct page){.start = at & ~(PAGE - 1)};
	}
}

/* guards_cover() - Is it of what may be guarded? */
bool guards_cover(uint64_t at)
{
	return guards_page(at) || is_region(at);
}

/* guards_open() - One page is open; until it is closed, if by then anything is guarded */
void guards_open(uint64_t at)
{
	protect(at & ~(PAGE - 1), (at & ~(PAGE - 1)) + PAGE, true);
}

void guards_close(uint64_t start)
{
	if (guards_are_on())
		protect(start, start + PAGE, false);
}

static void before_fork(void)
{
	guards_hold();
	forks++;
	guards_off();
	guards_let_go();
}

static void in_parent(void)
{
	forks--;
}

static void in_child(void)
{
	taken = false;
	forks = 0;
	region_count = page_count = 0;
}

/* guards_begin() - Whether a parent has not done it */
bool guards_begin(void)
{
	if (regions)
		return false;
	long at = syscall(SYS_mmap, NULL, REGIONS * sizeof *regions, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, (off_t)0);
	regions = at == -1 ? NULL : (struct range *)at;
	pthread_atfork(before_fork, in_parent, in_child);
	return true;
}
#endif
