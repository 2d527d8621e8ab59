/* The processes without which the fabric cannot go on
 *
 * Theory of Operation
 *
 * The switches, their database, what holds the namespaces: fabricd needs them, is none of
 * their parents, and may ask nothing of them for hours.  The testbed names them (`watch`).
 * The kernel says at once when one has ended, reaped or not: a descriptor of a process is
 * readable then (pidfd_open(2)).  Nothing is left to be done but to say so, and to end: a
 * fabric whose fabricd has ended is dead for everybody who looks.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "control/control.h"
#include "engine/fabric.h"
#include "engine/report.h"
#include "engine/watch.h"

struct part {
	struct reader reader; /* first */
	struct part *next;
	int fd, pid;
	char name[64];
};

static void ended(struct fabric *f, struct reader *r)
{
	const struct part *p = (const struct part *)r;
	time_t now = time(NULL);
	struct tm at;
	char clock[16];

	watch_remove(f, p->fd);
	strftime(clock, sizeof clock, "%H:%M:%S", gmtime_r(&now, &at));
	if (!f->failed) /* of several, the first is what they die of */
		fprintf(stderr, "fabricd: %s (process %d) has ended, at %s UTC\n", p->name, p->pid, clock);
	report_event(f, REPORT_PART_LOST, json_pack("{s:s, s:i}", "name", p->name, "pid", p->pid));
	f->failed = f->stop = true;
}

static bool part_add(struct fabric *f, const char *name, int pid)
{
	struct part *p = calloc(1, sizeof *p);

	if (!p)
		return false;
	*p = (struct part){.reader.readable = ended, .next = f->parts, .pid = pid};
	snprintf(p->name, sizeof p->name, "%s", name);
	p->fd = (int)syscall(SYS_pidfd_open, pid, 0);
	f->parts = p;
	if (p->fd >= 0)
		return watch_add(f, p->fd, WATCH_READER, p);
	if (errno == ESRCH)
		ended(f, &p->reader);
	return errno == ESRCH;
}

/* parts_watch() - The request `watch`
 * Return: NULL, or what is wrong
 */
const char *parts_watch(struct fabric *f, struct control_conn *c, const json_t *request, json_t *answer)
{
	const json_t *processes = json_object_get(request, "processes"), *pid;
	const char *name;

	(void)c;
	(void)answer;
	if (!json_is_object(processes))
		return "watch: processes: pids by name are needed";
	json_object_foreach((json_t *)processes, name, pid)
		if (!json_is_integer(pid) || json_integer_value(pid) < 1 || json_integer_value(pid) > 1 << 30)
			return "watch: processes: no such pid";
	json_object_foreach((json_t *)processes, name, pid)
		if (!part_add(f, name, (int)json_integer_value(pid)))
			return "watch: a process cannot be watched";
	return NULL;
}

void parts_close(struct fabric *f)
{
	while (f->parts) {
		struct part *p = f->parts;

		f->parts = p->next;
		if (p->fd >= 0)
			close(p->fd);
		free(p);
	}
}
