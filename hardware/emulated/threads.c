/* Threads at rest: emulated time goes on when none of a process runs
 *
 * Theory of Operation
 *
 * Which threads run the kernel knows (/proc/self/task).  They are looked at one after the other, and one that was asleep
 * may have been woken since by one that was not looked at yet.  So for how long each has run is read before and after: if
 * that is the same, all have been asleep at a time in between.
 *
 * A thread that goes on for COMPUTES_NS of its CPU time without having waited computes for long, or spins until another
 * has done something.  It is not waited for any more, until it has waited.  Wall time plays no part: a busy machine changes
 * nothing.
 */
#include "emulated.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define THREADS 256	      /* that are looked at */
#define COMPUTES_NS 8000000ull
#define YIELDS 4	      /* before it is slept for a little in between */
#define LOOK_NS 30000

/* Only one thread at a time waits for the others to rest */
static struct thread {
	int id;
	uint64_t ran;
	bool goes_on;
} threads[THREADS];
static int count;
static struct busy {
	int id;
	unsigned long long waits;
	uint64_t ran; /* how often it had waited, and for how long it had run, when it was seen first */
} busy[THREADS];

struct entry {
	uint64_t inode;
	int64_t place;
	unsigned short bytes;
	unsigned char type;
	char name[];
};

/* A file of a thread; false: it has ended */
static bool read_file(int id, const char *name, char *text, size_t room)
{
	char path[64];

	snprintf(path, sizeof path, "/proc/self/task/%d/%s", id, name);
	int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
	long n = fd < 0 ? -1 : syscall(SYS_read, fd, text, room - 1);
	if (fd >= 0)
		syscall(SYS_close, fd);
	text[n > 0 ? n : 0] = 0;
	return n > 0;
}

/* For how long it has run (ns) */
static uint64_t ran(int id)
{
	struct timespec t = {0};

	syscall(SYS_clock_gettime, (clockid_t)(~(unsigned)id << 3 | 6), &t); /* a thread's clock of CPU time */
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void list(void)
{
	int self = (int)syscall(SYS_gettid), folder = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_Alignas(8) char entries[4096];
	long n;

	count = 0;
	while (folder >= 0 && (n = syscall(SYS_getdents64, folder, entries, sizeof entries)) > 0)
		for (long at = 0; at < n; at += ((struct entry *)(entries + at))->bytes) {
			int id = atoi(((struct entry *)(entries + at))->name);
			if (id && id != self && count < THREADS)
				threads[count++] = (struct thread){id, ran(id), false};
		}
	if (folder >= 0)
		syscall(SYS_close, folder);
}

static bool runs(int id)
{
	char text[512];
	const char *rest = read_file(id, "stat", text, sizeof text) ? strrchr(text, ')') : NULL;

	return rest && (rest[2] == 'R' || rest[2] == 'D');
}

static bool is_there(int id)
{
	for (int i = 0; i < count; i++)
		if (threads[i].id == id)
			return true;
	return false;
}

/* What is known of a thread, or the place of one that has ended: all that are looked at have room */
static struct busy *busy_of(int id)
{
	struct busy *place = busy;

	for (struct busy *b = busy; b < busy + THREADS; b++)
		if (b->id == id)
			return b;
	while (place < busy + THREADS - 1 && place->id && is_there(place->id))
		place++;
	return place;
}

/* Has a thread that runs done so for long, without having waited? */
static bool computes(int id)
{
	char text[2048];
	unsigned long long waits = 0;
	uint64_t has_run = ran(id);
	struct busy *b = busy_of(id);

	const char *at = read_file(id, "status", text, sizeof text) ? strstr(text, "\nvoluntary_ctxt_switches:") : NULL;
	if (at)
		sscanf(at, "\nvoluntary_ctxt_switches: %llu", &waits);
	if (b->id != id || b->waits != waits || has_run < b->ran) /* another may have its number */
		*b = (struct busy){id, waits, has_run};
	return has_run - b->ran >= COMPUTES_NS;
}

/* threads_awakes() - Does a thread run, or sleep on a futex for some time of the machine's? */
bool threads_awakes(int id)
{
	char text[256];
	unsigned long long limit;
	long call;

	if (!read_file(id, "syscall", text, sizeof text))
		return false;
	return sscanf(text, "%ld %*x %*x %*x %llx", &call, &limit) != 2 || (call == SYS_futex && limit);
}

/* threads_signalled() - Is there a signal for a thread, but for those that are blocked? */
bool threads_signalled(int id, const sigset_t *blocked)
{
	static const char *const kinds[] = {"\nSigPnd:", "\nShdPnd:"};
	unsigned long long its = 0, all = 0;
	char text[2048];

	if (!read_file(id, "status", text, sizeof text))
		return false;
	for (int i = 0; i < 2; i++) {
		const char *at = strstr(text, kinds[i]);
		if (at && sscanf(at + strlen(kinds[i]), " %llx", &its) == 1)
			all |= its;
	}
	for (int number = 1; number <= 64; number++)
		if (all >> (number - 1) & 1 && !sigismember(blocked, number))
			return true;
	return false;
}

static bool at_rest(void)
{
	list();
	for (int i = 0; i < count; i++)
		if (runs(threads[i].id)) {
			if (!computes(threads[i].id))
				return false;
			threads[i].goes_on = true;
		}
	for (int i = 0; i < count; i++)
		if (!threads[i].goes_on && ran(threads[i].id) != threads[i].ran)
			return false;
	return true;
}

/* threads_rest() - Wait until no other thread of the process runs */
void threads_rest(void)
{
	const struct timespec little = {0, LOOK_NS};

	for (int looks = 0; !at_rest() || limits_wake(); looks++) {
		if (looks < YIELDS)
			sched_yield();
		else
			syscall(SYS_nanosleep, &little, NULL);
	}
}
