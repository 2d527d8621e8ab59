/* One host: a small process in namespaces of its own, as in Mininet, and the channel on which we speak to it
 *
 * First it says "y" or "n" (whether its network belongs to a user namespace) or "e" and what went wrong.  Then it is
 * sent configurations, and answers each with what went wrong, "" if nothing did.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "holder.h"

#define CHANNEL 3
#define MESSAGE (1 << 20)

static void die_with(int parent)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent) /* it died before we asked */
		_exit(1);
}

static void keep_only(int channel)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	dup2(null, 0);
	dup2(null, 1);
	dup2(channel, CHANNEL);
	close_range(CHANNEL + 1, ~0u, 0);
}

static void say(char kind, const char *text)
{
	char message[ERROR_ROOM + 1];
	int n = snprintf(message, sizeof message, "%.1s%s", kind ? &kind : "", text);

	send(CHANNEL, message, (size_t)n + 1, MSG_NOSIGNAL); /* with its end: nothing at all would be the end of us */
}

static void serve(void)
{
	static char message[MESSAGE];
	char error[ERROR_ROOM];

	for (ssize_t n; (n = recv(CHANNEL, message, sizeof message, 0)) > 0;) {
		json_t *wanted = json_loadb(message, (size_t)n, 0, NULL);

		if (wanted)
			interfaces_configure(wanted, error);
		else
			snprintf(error, sizeof error, "a configuration that is not JSON");
		json_decref(wanted);
		say('\0', error);
	}
}

static _Noreturn void live(const char *name, long ids, int parent)
{
	char error[ERROR_ROOM], title[16];
	bool users;

	die_with(parent);
	snprintf(title, sizeof title, "host %s", name);
	prctl(PR_SET_NAME, title);
	users = ids >= 0 && network_enter_of(ids);
	if ((users || network_enter(error)) && mounts_own(error))
		say(users ? 'y' : 'n', "");
	else
		say('e', error);
	serve();
	for (;;)
		pause();
}

/* host_start() - Start a host's process; host_started() waits for it */
bool host_start(struct host *h, long ids, char *error)
{
	int pair[2], parent = getpid();

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		return failed(error, "socketpair");
	h->pid = fork();
	if (h->pid == 0) {
		keep_only(pair[1]);
		live(h->name, ids, parent);
	}
	close(pair[1]);
	h->channel = pair[0];
	if (h->pid < 0)
		return failed(error, "fork");
	return true;
}

static void receive(const struct host *h, char *text, size_t room)
{
	ssize_t n = recv(h->channel, text, room - 1, 0);

	if (n > 0)
		text[n] = '\0';
	else
		snprintf(text, room, "edied");
}

/* host_started() - Wait until a host has its namespaces
 * @error:	Filled with what went wrong, empty if nothing did
 */
void host_started(struct host *h, char *error)
{
	char said[ERROR_ROOM + 1];

	receive(h, said, sizeof said);
	h->users = said[0] == 'y';
	snprintf(error, ERROR_ROOM, "%s", said[0] == 'e' ? said + 1 : "");
}

/* host_ask() - Have a host configure its interfaces; if that could be asked, host_answer() says how it went */
bool host_ask(const struct host *h, const json_t *wanted)
{
	char *text = json_dumps(wanted, JSON_COMPACT);
	bool asked = text && send(h->channel, text, strlen(text), MSG_NOSIGNAL) > 0;

	free(text);
	return asked;
}

void host_answer(const struct host *h, char *error)
{
	ssize_t n = recv(h->channel, error, ERROR_ROOM - 1, 0);

	if (n > 0)
		error[n] = '\0';
	else
		snprintf(error, ERROR_ROOM, "died");
}
