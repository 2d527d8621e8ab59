/* holder: holds the fabric's network namespace, and one per host by a small process each, as Mininet does
 *
 * Theory of Operation
 *
 * A program of its own, and in C, because a fabric waits for it and because it is forked once per host: that costs
 * 0.1 ms where Python takes 5.
 *
 * It enters a network namespace of its own, for bridges, TAP devices and whatever runs on them, and then speaks JSON
 * lines.  It says {"ready": true}.  The first line on stdin is {"names": [..], "ids": first user id of the ranks' or
 * null, "group": control group}; it forks a process per name that unshares its network and mount namespace, and
 * answers {"pids": {name: pid}, "users": bool}.  With `ids` each host's network belongs to a user namespace of its own,
 * which the process holds as descriptor USERS; `users` says whether that could be.  After that comes any number of
 * {"configure": {name: {"links": [{"name", "mac", "mtu", "ip", "prefix"}], "routes": "lines for ip -batch"}}}, each
 * answered with {"errors": {name: text}}, empty if all went well.  Its children die with it.
 *
 * The end of stdin is the death of the fabric's owner.  Then it kills what is left of the fabric, and ends.  But after
 * {"stays": true} it just holds on, until it is killed.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "holder.h"

struct hosts {
	struct host *each;
	size_t count;
};

bool failed(char *error, const char *what)
{
	snprintf(error, ERROR_ROOM, "%s: %s", what, strerror(errno));
	return false;
}

/* One JSON line on stdout.  If nobody is there any more, the end of stdin says the same. */
static void say(json_t *answer)
{
	json_dumpf(answer, stdout, JSON_COMPACT);
	putchar('\n');
	fflush(stdout);
	json_decref(answer);
}

/* The next line of stdin; NULL at its end */
static json_t *heard(void)
{
	char *line = NULL;
	size_t room = 0;
	ssize_t n = getline(&line, &room, stdin);
	json_t *said = n > 0 ? json_loadb(line, (size_t)n, 0, NULL) : NULL;

	free(line);
	return said;
}

static void say_error(const char *name, const char *error)
{
	say(json_pack("{s:{s:s}}", "errors", name, error));
}

/* The hosts of the first question; says how that went.  false: there are none. */
static bool start_hosts(struct hosts *all, const json_t *first)
{
	const json_t *names = json_object_get(first, "names"), *ids = json_object_get(first, "ids");
	long first_id = json_is_integer(ids) ? (long)json_integer_value(ids) : -1;
	json_t *pids = json_object(), *errors = json_object();
	char error[ERROR_ROOM] = "";
	bool users = true;

	all->each = calloc(json_array_size(names) + 1, sizeof *all->each);
	for (; all->each && all->count < json_array_size(names); all->count++) {
		struct host *h = &all->each[all->count];

		h->name = json_string_value(json_array_get(names, all->count));
		if (!h->name || !host_start(h, first_id, error)) {
			json_object_set_new(errors, h->name ? h->name : "a host", json_string(error));
			break;
		}
	}
	for (size_t i = 0; i < all->count; i++) {
		struct host *h = &all->each[i];

		host_started(h, error);
		if (error[0])
			json_object_set_new(errors, h->name, json_string(error));
		json_object_set_new(pids, h->name, json_integer(h->pid));
		users = users && h->users;
	}
	bool done = json_object_size(errors) == 0;
	if (done)
		say(json_pack("{s:O, s:b}", "pids", pids, "users", users));
	else
		say(json_pack("{s:O}", "errors", errors));
	json_decref(pids);
	json_decref(errors);
	return done;
}

static void configure(const struct hosts *all, const json_t *wanted)
{
	json_t *errors = json_object();
	char error[ERROR_ROOM];

	for (struct host *h = all->each; h < all->each + all->count; h++) {
		const json_t *its = json_object_get(wanted, h->name);

		h->asked = its && host_ask(h, its);
		if (its && !h->asked)
			json_object_set_new(errors, h->name, json_string(strerror(errno)));
	}
	for (struct host *h = all->each; h < all->each + all->count; h++) {
		if (!h->asked)
			continue;
		host_answer(h, error);
		if (error[0])
			json_object_set_new(errors, h->name, json_string(error));
	}
	say(json_pack("{s:o}", "errors", errors));
}

/* Nobody will ask any more, but the fabric stays: until we are killed, or all hosts are */
static void hold_on(const struct hosts *all)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	for (size_t i = 0; i < all->count; i++)
		close(all->each[i].channel);
	dup2(null, 0);
	dup2(null, 1);
	while (wait(NULL) > 0 || errno == EINTR)
		;
}

int main(void)
{
	struct hosts all = {0};
	struct rlimit files;
	char error[ERROR_ROOM];
	bool stays = false;
	json_t *first, *said;

	signal(SIGPIPE, SIG_IGN);
	if (!network_enter(error)) {
		say_error("the switches", error);
		return 0;
	}
	say(json_pack("{s:b}", "ready", 1));
	if (!(first = heard())) /* nobody is there any more */
		return 0;
	if (!getrlimit(RLIMIT_NOFILE, &files)) { /* a channel per host */
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	start_hosts(&all, first);
	for (; (said = heard()); json_decref(said)) {
		stays = stays || json_is_true(json_object_get(said, "stays"));
		if (json_object_get(said, "configure"))
			configure(&all, json_object_get(said, "configure"));
	}
	if (stays)
		hold_on(&all);
	else
		sweep(json_string_value(json_object_get(first, "group")));
	json_decref(first);
	free(all.each);
	return 0;
}
