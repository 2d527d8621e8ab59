/* Code of users' own
 *
 * Theory of Operation
 *
 * The testbed has compiled it and looked at what it uses (testbed/own): nothing of it runs before it is called, and it
 * asks nobody but the mathematical library.  Its file is opened with all others, and loaded when every privilege is given
 * up (privileges.c): from the first moment on it has no more rights than it would have later.
 *
 * A call that crashes, or does not return, would end a fabric without a word.  So a signal leads back to where
 * plugin_call() began.  A timer of this thread's CPU time looks every TICK_NS whether the same call still runs: a busy or
 * sleeping machine does not count, and of the fabric's figures nothing depends on it.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "engine/fabric.h"
#include "engine/report.h"
#include "plugin/plugin.h"
#include "plugin/railbed.h"

#define TICK_NS 250000000L
#define TICKS 4 /* of one call: 1 s of computing at the most */

static struct {
	pthread_t thread;
	sigjmp_buf back;
	volatile sig_atomic_t inside, ticks; /* ticks since the call began */
	bool ready;
} guard;

static void on_signal(int number)
{
	if (!pthread_equal(pthread_self(), guard.thread) || !guard.inside) {
		if (number != SIGVTALRM)
			signal(number, SIG_DFL); /* it strikes again, as it would have without us */
		return;
	}
	if (number == SIGVTALRM && ++guard.ticks < TICKS)
		return;
	guard.inside = 0;
	siglongjmp(guard.back, number);
}

static bool guard_ready(struct fabric *f)
{
	static char stack[65536]; /* endless recursion leaves none of its own */
	static const int numbers[] = {SIGVTALRM, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP};
	struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGVTALRM};
	struct itimerspec each = {.it_interval.tv_nsec = TICK_NS, .it_value.tv_nsec = TICK_NS};
	struct sigaction act = {.sa_handler = on_signal, .sa_flags = SA_RESTART | SA_ONSTACK};
	timer_t timer;

	if (guard.ready)
		return true;
	guard.thread = pthread_self();
	event._sigev_un._tid = gettid();
	bool done = !sigaltstack(&(stack_t){.ss_sp = stack, .ss_size = sizeof stack}, NULL);
	for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
		done = done && !sigaction(numbers[i], &act, NULL);
	guard.ready = done && !timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &timer) && !timer_settime(timer, 0, &each, NULL);
	return guard.ready || config_fail(f, "no timer to guard code of users' own");
}

/* plugin_open() - {"name", "file"} of the configuration
 * Return: false, with f->error set, if there is no such file
 */
bool plugin_open(struct fabric *f, struct plugin *p, const json_t *o)
{
	const char *name = json_string_value(json_object_get(o, "name")), *file = json_string_value(json_object_get(o, "file"));

	if (!name || !file || !name[0] || strlen(name) >= sizeof p->name)
		return config_fail(f, "of a user's own: a name of up to %zu characters and a file are needed", sizeof p->name - 1);
	strcpy(p->name, name);
	p->fd = open(file, O_RDONLY | O_CLOEXEC);
	return p->fd >= 0 || config_fail(f, "%s: cannot open %s", name, file);
}

/* plugin_keys() - Its parameters' keys, at most so many, into @key
 * Return: false, with f->error set, if there are none or more
 */
bool plugin_keys(struct fabric *f, const json_t *o, const char **key, size_t most)
{
	const json_t *keys = json_object_get(o, "params"), *text;
	size_t i;

	json_array_foreach(keys, i, text) {
		if (i == most || !json_is_string(text))
			return config_fail(f, "of a user's own: params: a list of up to %zu keys is needed", most);
		key[i] = json_string_value(text);
	}
	return true;
}

/* plugin_load() - What it defines under that name, which begins with a version
 * Return: NULL, with f->error set, if it cannot be loaded
 */
const void *plugin_load(struct fabric *f, struct plugin *p, const char *symbol)
{
	char path[32];

	if (!guard_ready(f))
		return NULL;
	snprintf(path, sizeof path, "/proc/self/fd/%d", p->fd);
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	const uint32_t *version = library ? dlsym(library, symbol) : NULL;
	if (!version)
		config_fail(f, "%s: %s", p->name, library ? symbol : dlerror());
	else if (!*version || *version > RAILBED_VERSION)
		config_fail(f, "%s: not of this version of railbed.h", p->name);
	close(p->fd);
	p->fd = -1;
	return f->error[0] ? NULL : version;
}

/* plugin_failed() - It cannot go on: what was wrong in which of its functions */
void plugin_failed(struct fabric *f, const struct plugin *p, const char *entry, const char *wrong)
{
	if (f->failed)
		return;
	fprintf(stderr, "fabricd: %s: %s(): %s\n", p->name, entry, wrong);
	report_event(f, REPORT_OWN_FAILED, json_pack("{s:s, s:s, s:s}", "name", p->name, "function", entry, "reason", wrong));
	f->failed = f->stop = true;
}

static const char *words(int number)
{
	switch (number) {
	case SIGVTALRM: return "has computed for a second and does not return: an endless loop?";
	case SIGFPE:
	case SIGTRAP: /* what the compiler puts where that is certain, on ARM */
	case SIGILL: return "does what C leaves undefined, such as to divide a whole number by 0";
	default: return "reads or writes memory that is not there: a pointer, an index, or endless recursion";
	}
}

/* plugin_call() - Call one of its functions, unless the fabric has failed already
 * Return: whether it has returned
 */
bool plugin_call(struct fabric *f, const struct plugin *p, const char *entry, void (*call)(void *), void *what)
{
	if (f->failed)
		return false;
	int number = sigsetjmp(guard.back, 0);
	if (number) {
		plugin_failed(f, p, entry, words(number));
		return false;
	}
	guard.ticks = 0;
	guard.inside = 1;
	call(what);
	guard.inside = 0;
	return true;
}
