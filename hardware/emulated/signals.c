/* Signals that instructions cause are ours first: none of a program's masks blocks them, and its handler stands behind ours
 *
 * A thread that reads the time-stamp counter, or polls memory, gets SIGSEGV and SIGTRAP.  Blocked, they end the process.
 */
#include "emulated.h"

#include <dlfcn.h>
#include <signal.h>

#define REAL(name)                                                                                                          \
	static __typeof__(&name) real;                                                                                      \
	if (!real)                                                                                                          \
	*(void **)&real = dlsym(RTLD_NEXT, #name)

static const sigset_t *without_ours(const sigset_t *of, sigset_t *to)
{
	if (!of)
		return NULL;
	*to = *of;
	sigdelset(to, SIGSEGV);
	sigdelset(to, SIGTRAP);
	return to;
}

int pthread_sigmask(int how, const sigset_t *set, sigset_t *was)
{
	sigset_t s;

	REAL(pthread_sigmask);
	return real(how, how == SIG_UNBLOCK ? set : without_ours(set, &s), was);
}

int sigprocmask(int how, const sigset_t *restrict set, sigset_t *restrict was)
{
	sigset_t s;

	REAL(sigprocmask);
	return real(how, how == SIG_UNBLOCK ? set : without_ours(set, &s), was);
}

int sigaction(int number, const struct sigaction *restrict new, struct sigaction *restrict was)
{
	struct sigaction s;

	REAL(sigaction);
	if (new) {
		s = *new;
		without_ours(&new->sa_mask, &s.sa_mask);
		new = &s;
	}
	return number == SIGSEGV && railbed_handles(new, was) ? 0 : real(number, new, was);
}

__sighandler_t signal(int number, __sighandler_t handler)
{
	struct sigaction new = {.sa_handler = handler, .sa_flags = SA_RESTART}, was;

	REAL(signal);
	return number == SIGSEGV && railbed_handles(&new, &was) ? was.sa_handler : real(number, handler);
}
