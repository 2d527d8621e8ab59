/* Pages of the process become pages that fabricd shares, in place
 *
 * Theory of Operation
 *
 * fabricd maps memfds; programs register what malloc, the stack or the linker gave them.  The process has one sparse
 * memfd in which a page's place is its address.  To share a range, its private pages are copied there and then replaced,
 * in place, by a shared mapping of the same pages: what stands there stays there.  Which pages are private the kernel's
 * list of mappings says each time, so unmapping needs no care, and ranges may overlap.
 *
 * Between copy and replacement nobody may write.  In a program with threads the range is read-only meanwhile, and a
 * thread that writes to it waits in the handler of SIGSEGV.  All is done by a thread of its own, for the range may be the
 * caller's stack: while that waits, nothing happens to it.  It is the kernel's thread, not the C library's, and makes system
 * calls by number: a program's memory hooks (UCX has some) would take what it does for the program's doing, and may read the
 * clock, whose lock its caller holds.
 *
 * A child would go on with its parent's shared pages.  So it gets private copies of them before fork returns to it, and
 * its parent waits for that; of the stack on which both go on, the parent has a private copy meanwhile.
 */
#include "clock.h"
#include "share.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/single_threaded.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NAME "railbed-memory"
#define ADDRESSES (1ll << 47)
#define PIECES 512
#define HUGE_PAGE (2ull << 20)

struct piece {
	uint64_t start, end;
	int protection;
	bool huge;
};
struct work {
	uint64_t start, end;
	struct piece piece[PIECES];
	int count, wrong;
	bool back; /* private again, not shared */
	struct span *found; /* not NULL: what of the range is there, as not all need be */
	int found_count, found_room;
};

static int file = -1;
static _Atomic uint64_t busy_start, busy_end; /* what is being replaced */

/* share_file() - The memfd, or -1 */
int share_file(void)
{
	if (file >= 0)
		return file;
	file = memfd_create(NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (file >= 0 && (ftruncate(file, ADDRESSES) || fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK))) {
		close(file);
		file = -1;
	}
	return file;
}

/* So much of the range is there.  Return: false if there is no room to say so */
static bool note(struct work *w, uint64_t start, uint64_t end)
{
	struct span *last = w->found_count ? &w->found[w->found_count - 1] : NULL;

	if (last && last->end == start) {
		last->end = end;
		return true;
	}
	if (w->found_count == w->found_room)
		return false;
	w->found[w->found_count++] = (struct span){start, end};
	return true;
}

/* One line of the list of mappings, as far as it lies in the range: what to do with it.  0, or what is wrong */
static int look_at(struct work *w, const char *line, uint64_t *at)
{
	uint64_t start, end, place;
	char flags[5];

	if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64, &start, &end, flags, &place) != 4 || end <= *at || start >= w->end)
		return 0;
	bool guard = flags[0] != 'r', ours = strstr(line, "memfd:" NAME), others = flags[3] != 'p' && !ours;
	if (w->found && (guard || others))
		return 0; /* as if nothing were there */
	if ((start > *at && !w->found) || guard)
		return EFAULT; /* a hole, or a guard */
	bool moved = ours && place != start; /* by mremap: it has to have its place again */
	start = start > *at ? start : *at;
	*at = end;
	if (w->found && !note(w, start, end < w->end ? end : w->end))
		return ENOMEM;
	if (ours && !moved)
		return 0;
	if (others) {
		fprintf(stderr, "railbed: memory that is shared already cannot be registered: %s", line);
		return EOPNOTSUPP;
	}
	if (w->count == PIECES)
		return ENOMEM;
	bool huge = strstr(line, "hugepage") || strstr(line, "huge/");
	if (huge)
		start &= ~(HUGE_PAGE - 1);
	else if (end > w->end)
		end = w->end;
	if (huge && end > ((w->end + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1)))
		end = (w->end + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1);
	w->piece[w->count++] = (struct piece){
		.start = start,
		.end = end,
		.huge = huge,
		.protection = PROT_READ | (flags[1] == 'w' ? PROT_WRITE : 0) | (flags[2] == 'x' ? PROT_EXEC : 0),
	};
	return 0;
}

static int look(struct work *w)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	uint64_t at = w->start;
	char line[4352];
	int wrong = maps ? 0 : ENOMEM;

	while (!wrong && at < w->end && fgets(line, sizeof line, maps))
		wrong = look_at(w, line, &at);
	if (maps)
		fclose(maps);
	return wrong ? wrong : at < w->end && !w->found ? EFAULT : 0;
}

/* A write to what is being replaced waits until it is */
static bool replaced(siginfo_t *info, void *context)
{
	uint64_t at = (uint64_t)(uintptr_t)info->si_addr;

	(void)context;
	if (at < busy_start || at >= busy_end)
		return false;
	while (at >= busy_start && at < busy_end)
		sched_yield();
	return true;
}

static void protect(uint64_t start, uint64_t end, int protection)
{
	syscall(SYS_mprotect, start, end - start, protection);
}

static int replace(const struct piece *p, bool protects)
{
	if (protects && p->protection & PROT_WRITE && syscall(SYS_mprotect, p->start, p->end - p->start, p->protection & ~PROT_WRITE))
		return errno;
	for (uint64_t at = p->start; at < p->end;) {
		long n = syscall(SYS_pwrite64, file, at, p->end - at, at);
		if (n <= 0) {
			int wrong = errno == ENOSPC || errno == EFBIG ? ENOMEM : EFAULT;
			protect(p->start, p->end, p->protection);
			return wrong;
		}
		at += (uint64_t)n;
	}
	long got = syscall(SYS_mmap, p->start, p->end - p->start, p->protection, MAP_SHARED | MAP_FIXED, file, (off_t)p->start);
	return got == -1 ? errno : 0;
}

/* The same the other way round, for what @p is a mapping of */
static int give_back(const struct piece *p)
{
	size_t n = p->end - p->start;
	long copy = syscall(SYS_mmap, NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, (off_t)0);

	if (copy == -1)
		return ENOMEM;
	memcpy((void *)copy, (const void *)p->start, n);
	protect((uint64_t)copy, (uint64_t)copy + n, p->protection);
	return syscall(SYS_mremap, copy, n, n, MREMAP_MAYMOVE | MREMAP_FIXED, p->start) == -1 ? errno : 0;
}

static int carry_out(void *of)
{
	struct work *w = of;
	bool protects = w->count && !__libc_single_threaded;

	for (int i = 0; w->back && i < w->count; i++)
		w->wrong = give_back(&w->piece[i]);
	if (w->back)
		return 0;

	for (int i = 0; i < w->count && !w->wrong; i++) {
		busy_end = protects ? w->piece[i].end : 0;
		busy_start = w->piece[i].start;
		w->wrong = replace(&w->piece[i], protects);
		busy_end = 0;
	}
	return 0;
}

/* Have a thread carry it out, and wait.  It has our thread's variables, and no signals */
static bool elsewhere(struct work *w)
{
	static _Alignas(16) uint8_t its_stack[65536];
	static _Atomic int runs; /* the kernel clears it when the thread has ended */
	sigset_t all, was;

	runs = 1;
	railbed_most(&all);
	pthread_sigmask(SIG_SETMASK, &all, &was);
	int thread = clone(carry_out, its_stack + sizeof its_stack,
			   CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_CHILD_CLEARTID, w,
			   NULL, NULL, &runs);
	while (thread > 0 && runs)
		syscall(SYS_futex, &runs, FUTEX_WAIT, 1, NULL);
	pthread_sigmask(SIG_SETMASK, &was, NULL);
	return thread > 0;
}

static bool on_our_stack(const struct work *w)
{
	uint64_t here = (uint64_t)(uintptr_t)__builtin_frame_address(0);

	return here >= w->start - 65536 && here < w->end + 65536;
}

static struct work current; /* under the session's lock; not on the stack, which may be what is replaced */

static int share(void)
{
	bool alone = __libc_single_threaded;

	if (share_file() < 0)
		return ENOMEM;
	current.wrong = look(&current);
	if (current.wrong || !current.count)
		return current.wrong;
	if (!on_our_stack(&current) && alone) {
		carry_out(&current);
		return current.wrong;
	}
	if (!alone)
		railbed_faults(replaced);
	return elsewhere(&current) ? current.wrong : EAGAIN;
}

/* share_range() - Have the pages of [start, end) shared; 0, or an error as of ibv_reg_mr */
int share_range(uint64_t start, uint64_t end)
{
	current = (struct work){.start = start, .end = end};
	return share();
}

/* share_present() - Have those pages of a range shared that are there and can be
 * @found:	Set to them, of which there is @room for so many spans
 *
 * Return: how many spans, or less than 0: minus what is wrong
 */
int share_present(const struct span *range, struct span *found, int room)
{
	current = (struct work){.start = range->start, .end = range->end, .found = found, .found_room = room};
	int wrong = share();
	return wrong ? -wrong : current.found_count;
}

/* --- fork --- */
static struct work forked, stack; /* what is shared then; of that, the stack that fork is called on */
static int ends[2];

static void look_for_shared(void)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	uint64_t start, end, here = (uint64_t)(uintptr_t)__builtin_frame_address(0);
	char line[4352], flags[5];

	forked.count = stack.count = 0;
	while (maps && fgets(line, sizeof line, maps)) {
		if (!strstr(line, "memfd:" NAME) || sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s", &start, &end, flags) != 3)
			continue;
		struct work *w = here >= start - 65536 && here < end + 65536 ? &stack : &forked;
		if (w->count < PIECES)
			w->piece[w->count++] = (struct piece){
				.start = start, .end = end, .protection = PROT_READ | (flags[1] == 'w' ? PROT_WRITE : 0)};
	}
	if (maps)
		fclose(maps);
}

/* share_before_fork() - The pages on which both will go on become private */
void share_before_fork(void)
{
	ends[0] = ends[1] = -1;
	if (file < 0)
		return;
	look_for_shared();
	if (stack.count) {
		stack.back = true;
		elsewhere(&stack);
	}
	if (forked.count && pipe2(ends, O_CLOEXEC))
		ends[0] = ends[1] = -1;
}

/* share_in_parent() - The child has its copies; the stack is shared again */
void share_in_parent(void)
{
	char none;

	if (file < 0)
		return;
	close(ends[1]);
	(void)!read(ends[0], &none, 1); /* ends when the child has closed its end */
	close(ends[0]);
	for (int i = 0; i < stack.count; i++)
		share_range(stack.piece[i].start, stack.piece[i].end);
}

/* share_in_child() - Copies of its own; the heap is its parent's until then, so nothing here may use it */
void share_in_child(void)
{
	if (file < 0)
		return;
	for (int i = 0; i < forked.count; i++)
		give_back(&forked.piece[i]);
	close(ends[0]);
	close(ends[1]);
	close(file);
	file = -1;
}
