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
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <ucontext.h>
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
	volatile uintptr_t at; /* the instruction that a signal has stopped */
	bool ready;
} guard;

static uintptr_t instruction(const void *context)
{
	const ucontext_t *c = context;

#if defined(__x86_64__)
	return (uintptr_t)c->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
	return (uintptr_t)c->uc_mcontext.pc;
#else
	(void)c;
	return 0;
#endif
}

static void on_signal(int number, siginfo_t *info, void *context)
{
	(void)info;
	if (!pthread_equal(pthread_self(), guard.thread) || !guard.inside) {
		if (number != SIGVTALRM)
			signal(number, SIG_DFL); /* it strikes again, as it would have without us */
		return;
	}
	if (number == SIGVTALRM && ++guard.ticks < TICKS)
		return;
	guard.inside = 0;
	guard.at = instruction(context);
	siglongjmp(guard.back, number);
}

static bool guard_ready(struct fabric *f)
{
	static char stack[65536]; /* endless recursion leaves none of its own */
	static const int numbers[] = {SIGVTALRM, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP};
	struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGVTALRM};
	struct itimerspec each = {.it_interval.tv_nsec = TICK_NS, .it_value.tv_nsec = TICK_NS};
	struct sigaction act = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK};
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

static bool plugin_open(struct fabric *f, struct plugin *p, const json_t *o)
{
	const char *name = json_string_value(json_object_get(o, "name")), *file = json_string_value(json_object_get(o, "file"));

	if (!name || !file || !name[0] || strlen(name) >= sizeof p->name)
		return config_fail(f, "of a user's own: a name of up to %zu characters and a file are needed", sizeof p->name - 1);
	strcpy(p->name, name);
	p->file = file;
	p->fd = open(file, O_RDONLY | O_CLOEXEC);
	return p->fd >= 0 || config_fail(f, "%s: cannot open %s", name, file);
}

static void *own_of(struct plugin *p)
{
	return (char *)p - p->kind->at;
}

static bool kind_open(struct fabric *f, const struct plugin_kind *kind)
{
	const json_t *o;
	size_t i;

	json_array_foreach(json_object_get(f->config, kind->list), i, o) {
		char *own = calloc(1, kind->bytes);
		if (!own)
			return config_fail(f, "out of memory");
		struct plugin *p = (void *)(own + kind->at);
		*p = (struct plugin){.next = f->plugins, .kind = kind, .fd = -1};
		f->plugins = p;
		if (!plugin_open(f, p, o) || !kind->named(f, own, json_object_get(o, "params")))
			return false;
	}
	return true;
}

/* plugins_open() - All that the configuration has; they may be used by name from now on
 * Return: false, with f->error set, if one cannot be had
 */
bool plugins_open(struct fabric *f)
{
	REGISTRY_EACH(struct plugin_kind, plugin_kinds, kind)
		if (!kind_open(f, *kind))
			return false;
	return true;
}

/* plugin_keys() - Its parameters' keys, at most so many, into @key
 * Return: false, with f->error set, if there are more, or others than texts
 */
bool plugin_keys(struct fabric *f, const json_t *keys, const char **key, size_t most)
{
	const json_t *text;
	size_t i;

	json_array_foreach(keys, i, text) {
		if (i == most || !json_is_string(text))
			return config_fail(f, "of a user's own: params: a list of up to %zu keys is needed", most);
		key[i] = json_string_value(text);
	}
	return true;
}

static bool plugin_load(struct fabric *f, struct plugin *p)
{
	char path[32];

	snprintf(path, sizeof path, "/proc/self/fd/%d", p->fd);
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	const uint32_t *version = library ? dlsym(library, p->kind->symbol) : NULL;
	close(p->fd);
	p->fd = -1;
	p->entry = version;
	if (!version)
		return config_fail(f, "%s: %s", p->name, library ? p->kind->symbol : dlerror());
	if (!*version || *version > RAILBED_VERSION)
		return config_fail(f, "%s: not of this version of railbed.h", p->name);
	return p->kind->loaded(f, own_of(p));
}

/* plugins_load() - All that were opened: before the first frame and queue pair, with no privilege left
 * Return: false, with f->error set, if one is not what it should be
 */
bool plugins_load(struct fabric *f)
{
	if (f->plugins && !guard_ready(f))
		return false;
	for (struct plugin *p = f->plugins; p; p = p->next)
		if (!plugin_load(f, p))
			return false;
	return true;
}

static void failed(struct fabric *f, const struct plugin *p, const char *entry, const char *wrong, uintptr_t offset)
{
	if (f->failed)
		return;
	fprintf(stderr, "fabricd: %s: %s(): %s\n", p->name, entry, wrong);
	report_event(f, REPORT_OWN_FAILED,
		     json_pack("{s:s, s:s, s:s, s:s, s:I}", "name", p->name, "function", entry, "reason", wrong, "file", p->file,
			       "offset", (json_int_t)offset));
	f->failed = f->stop = true;
}

/* plugin_failed() - It cannot go on: what was wrong in which of its functions */
void plugin_failed(struct fabric *f, const struct plugin *p, const char *entry, const char *wrong)
{
	failed(f, p, entry, wrong, 0);
}

/* Where an instruction stands in the compiled file; 0: elsewhere, such as in the mathematical library */
static uintptr_t offset_of(const struct plugin *p, uintptr_t at)
{
	Dl_info its, own;

	if (!at || !dladdr((const void *)at, &its) || !dladdr(p->entry, &own) || its.dli_fbase != own.dli_fbase)
		return 0;
	return at - (uintptr_t)own.dli_fbase;
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
		failed(f, p, entry, words(number), offset_of(p, guard.at));
		return false;
	}
	guard.ticks = 0;
	guard.inside = 1;
	call(what);
	guard.inside = 0;
	return true;
}
