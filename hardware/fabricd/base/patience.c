/* How long a silent process is waited for
 *
 * Theory of Operation
 *
 * On a busy machine everybody is late, so wall time alone says nothing about a
 * process that is waited for.  Three things end a wait:
 *
 *  - its connection is closed: the kernel says so at once (worker/worker.c, control/hold.c);
 *  - it is stopped: every look for STOPPED_NS finds it in state T;
 *  - it has ended, whether its parent has reaped it or not: where nothing else shows that,
 *    patience_gone() is asked;
 *  - patience has run out.
 *
 * What counts against patience is the time since the last word of the process, less
 * the time for which it was ready to run and got no CPU.  The kernel keeps the latter
 * for each thread (/proc/PID/task/TID/schedstat, second number).  So computing and
 * sleeping count; waiting for a CPU does not.  One look counts for LOOK_MAX_NS at
 * most: if fabricd itself did not run, that is not the other's fault.
 *
 * Before anything is concluded, the socket is read: the word may be there already.  A
 * process that several ranks share has said what one of them says (worker/clock.c): its
 * threads take turns, and some wait for long.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/patience.h"
#include "base/wall.h"

#define STOPPED_NS 2000000000LL
#define LOOK_MAX_NS (2 * PATIENCE_LOOK_NS)
#define THREADS_LOOKED_AT 320 /* more than ranks share a process */
#define SEEN_NS (PATIENCE_LOOK_NS / 4)

/* What was seen of a process.  Ranks that share one are looked at one after the other: it is read once for all */
struct seen {
	int pid;
	int64_t at_ns;
	bool there;
	char state;
	uint64_t cpu, queued_ns;
};

/* patience_of() - Who is at the other end of a unix socket */
void patience_of(struct patience *p, int socket)
{
	struct ucred peer;
	socklen_t len = sizeof peer;

	*p = (struct patience){.state = '?'};
	if (!getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &len) && peer.pid > 0)
		p->pid = peer.pid;
	patience_begin(p);
}

/* patience_begin() - It has said something, or is asked something: begin to wait anew */
void patience_begin(struct patience *p)
{
	p->heard_ns = p->looked_ns = wall_ns();
	p->spent_ns = p->stopped_ns = 0;
}

/* patience_heard() - Its process has said something at that time, if only by another's mouth */
void patience_heard(struct patience *p, int64_t at_ns)
{
	p->heard_ns = at_ns;
	p->spent_ns = 0;
}

static bool read_file(const char *path, char *text, size_t room)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, room - 1);

	if (fd >= 0)
		close(fd);
	text[n > 0 ? n : 0] = 0;
	return n > 0;
}

/* State and CPU ticks of a process.  Return: false if it is gone: one that nobody has reaped yet is, too */
static bool read_stat(int pid, char *state, uint64_t *cpu)
{
	char path[64], text[1024];
	unsigned long user = 0, system = 0;

	snprintf(path, sizeof path, "/proc/%d/stat", pid);
	const char *rest = read_file(path, text, sizeof text) ? strrchr(text, ')') : NULL;
	if (!rest || sscanf(rest + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", state, &user, &system) != 3)
		return false;
	*cpu = user + system;
	return *state != 'Z' && *state != 'X';
}

/* For how long threads of a process were ready to run and did not; more threads than we look at do not matter */
static uint64_t read_queued(int pid)
{
	char path[320], text[128];
	uint64_t sum = 0;

	snprintf(path, sizeof path, "/proc/%d/task", pid);
	DIR *tasks = opendir(path);
	const struct dirent *d;
	for (int n = 0; tasks && n < THREADS_LOOKED_AT && (d = readdir(tasks));) {
		unsigned long long queued = 0;
		if (d->d_name[0] == '.')
			continue;
		snprintf(path, sizeof path, "/proc/%d/task/%s/schedstat", pid, d->d_name);
		if (read_file(path, text, sizeof text) && sscanf(text, "%*u %llu", &queued) == 1)
			sum += queued;
		n++;
	}
	if (tasks)
		closedir(tasks);
	return sum;
}

static const struct seen *look_at(int pid, int64_t now)
{
	static struct seen seen;

	if (seen.pid == pid && now - seen.at_ns < SEEN_NS)
		return &seen;
	seen = (struct seen){.pid = pid, .at_ns = now};
	seen.there = read_stat(pid, &seen.state, &seen.cpu);
	if (seen.there)
		seen.queued_ns = read_queued(pid);
	return &seen;
}

/* patience_gone() - Has the process ended?  Of one that is not known nobody can tell */
bool patience_gone(const struct patience *p)
{
	char state;
	uint64_t cpu;

	return p->pid && !read_stat(p->pid, &state, &cpu);
}

/* patience_state() - What the process does now: of those of whom nobody judges, as nobody has looked at them before */
char patience_state(const struct patience *p)
{
	const struct seen *seen = p->pid ? look_at(p->pid, wall_ns()) : NULL;

	return seen && seen->there ? seen->state : '?';
}

/* patience_look() - Look at who is waited for
 * @limit_ns:	Patience
 * @may_stop:	It may be stopped without being judged (a user at the terminal may stop the testbed)
 * @why:	Set if it is judged
 *
 * Return: whether patience has run out
 */
bool patience_look(struct patience *p, int64_t limit_ns, bool may_stop, char *why, unsigned room)
{
	int64_t now = wall_ns(), step = now - p->looked_ns;

	if (step < PATIENCE_LOOK_NS)
		return false;
	bool first = p->looked_ns == p->heard_ns;
	uint64_t cpu = p->cpu, queued = p->queued_ns;
	const struct seen *seen = p->pid ? look_at(p->pid, now) : NULL;
	p->looked_ns = now;
	step = step > LOOK_MAX_NS ? LOOK_MAX_NS : step;
	if (!seen || !seen->there) {
		p->state = '?';
		p->spent_ns += step;
	} else {
		p->state = seen->state;
		p->cpu = seen->cpu;
		p->queued_ns = seen->queued_ns;
		bool stopped = p->state == 'T', idle = p->cpu == cpu;
		p->stopped_ns = stopped ? p->stopped_ns + step : 0;
		if (!(p->state == 'R' && idle) && !(stopped && may_stop))
			p->spent_ns += step; /* ready, and did not run: not its fault */
		int64_t kept = !first && p->queued_ns > queued ? (int64_t)(p->queued_ns - queued) : 0;
		p->spent_ns = p->spent_ns > kept ? p->spent_ns - kept : 0;
	}
	if (p->stopped_ns >= STOPPED_NS && !may_stop) {
		snprintf(why, room, "process %d is stopped", p->pid);
		return true;
	}
	if (p->spent_ns < limit_ns)
		return false;
	snprintf(why, room, "process %d has said nothing for %lld s", p->pid, (long long)((now - p->heard_ns) / 1000000000));
	return true;
}
