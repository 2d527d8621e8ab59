/* The end of the fabric's owner is the end of the fabric: kills what is left of it, which nobody else would do
 *
 * That is what runs in its control group, in its network namespace (which is ours), or carries its mark.  Until nothing
 * has turned up for a while: something may just be starting.
 */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "holder.h"

#define QUIET_NS 2000000000ll /* longer than a container takes to start */
#define PAUSE_NS 50000000l
#define MARK "RAILBED_FABRIC=" /* testbed.machine.processes.MARK */

static struct stat network; /* the fabric's namespace */
static const char *mark;    /* what its processes have in their environment */
static bool found;

static void kill_it(int pid)
{
	if (pid > 0 && pid != getpid() && !kill(pid, SIGKILL)) /* 0: of another pid namespace */
		found = true;
}

/* For nftw(): a folder is a control group */
static int kill_group(const char *path, const struct stat *st, int what, struct FTW *where)
{
	char file[PATH_MAX];
	FILE *pids;
	int pid;

	(void)st;
	(void)where;
	if (what != FTW_D || snprintf(file, sizeof file, "%s/cgroup.procs", path) >= (int)sizeof file)
		return 0;
	if ((pids = fopen(file, "re"))) {
		while (fscanf(pids, "%d", &pid) == 1)
			kill_it(pid);
		fclose(pids);
	}
	return 0;
}

static void kill_groups(const char *group)
{
	FILE *mounts = fopen("/proc/self/mountinfo", "re");
	char *line = NULL, point[PATH_MAX], kind[32], path[2 * PATH_MAX];
	size_t room = 0;

	while (mounts && getline(&line, &room, mounts) > 0) {
		const char *after = strstr(line, " - ");

		if (after && sscanf(line, "%*s %*s %*s %*s %4095s", point) == 1 && sscanf(after + 3, "%31s", kind) == 1 &&
		    (!strcmp(kind, "cgroup") || !strcmp(kind, "cgroup2"))) {
			snprintf(path, sizeof path, "%s/%s", point, group);
			nftw(path, kill_group, 16, FTW_PHYS | FTW_MOUNT);
		}
	}
	free(line);
	if (mounts)
		fclose(mounts);
}

static bool is_marked(const char *environment)
{
	FILE *file = mark ? fopen(environment, "re") : NULL;
	char *entry = NULL;
	size_t room = 0;
	bool has = false;

	while (file && !has && getdelim(&entry, &room, '\0', file) > 0)
		has = !strcmp(entry, mark);
	free(entry);
	if (file)
		fclose(file);
	return has;
}

static void kill_ours(void)
{
	DIR *all = opendir("/proc");
	char path[NAME_MAX + 32];
	struct stat st;

	for (struct dirent *each; all && (each = readdir(all));) {
		if (!isdigit((unsigned char)each->d_name[0]))
			continue;
		snprintf(path, sizeof path, "/proc/%s/ns/net", each->d_name);
		bool inside = !stat(path, &st) && st.st_ino == network.st_ino && st.st_dev == network.st_dev;
		snprintf(path, sizeof path, "/proc/%s/environ", each->d_name);
		if (inside || is_marked(path))
			kill_it(atoi(each->d_name));
	}
	if (all)
		closedir(all);
}

static const char *own_mark(void)
{
	extern char **environ;

	for (char **entry = environ; *entry; entry++)
		if (!strncmp(*entry, MARK, strlen(MARK)))
			return *entry;
	return NULL;
}

static long long now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ll + ts.tv_nsec;
}

/* sweep() - Kill what is left of the fabric
 * @group:	Its control group, below the root of each hierarchy
 */
void sweep(const char *group)
{
	mark = own_mark();
	if (stat("/proc/self/ns/net", &network))
		return;
	for (long long end = now_ns() + QUIET_NS; now_ns() < end;) {
		found = false;
		kill_groups(group);
		kill_ours();
		if (found)
			end = now_ns() + QUIET_NS;
		nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
	}
}
