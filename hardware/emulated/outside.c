/* Calls that wait for what is none of ours: a child to end, a signal
 *
 * What comes of them comes when the kernel says so, and the process has nothing to say until then (keeper.c).  If a child
 * has a NIC, its parent is as far as it is when it ends.
 */
#include "emulated.h"
#include "keeper.h"

#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define SIGSET_BYTES 8 /* of the kernel's */

pid_t wait4(pid_t pid, int *status, int options, struct rusage *usage)
{
	bool begun = !(options & WNOHANG) && outside_begin();
	pid_t ended = (pid_t)KERNEL(SYS_wait4, pid, status, options, usage);

	outside_end(begun);
	return ended;
}

pid_t wait3(int *status, int options, struct rusage *usage)
{
	return wait4(-1, status, options, usage);
}

pid_t waitpid(pid_t pid, int *status, int options)
{
	return wait4(pid, status, options, NULL);
}

pid_t wait(int *status)
{
	return wait4(-1, status, 0, NULL);
}

int waitid(idtype_t type, id_t id, siginfo_t *info, int options)
{
	bool begun = !(options & WNOHANG) && outside_begin();
	int wrong = (int)KERNEL(SYS_waitid, type, id, info, options, NULL);

	outside_end(begun);
	return wrong;
}

/* The signal by which memory is looked at (polling.c) is none of the program's: it ends no wait of its */
int sigsuspend(const sigset_t *mask)
{
	bool begun = outside_begin();
	sigset_t blocked = *mask;

	sigaddset(&blocked, SIGRTMAX);
	int wrong = (int)syscall(SYS_rt_sigsuspend, &blocked, SIGSET_BYTES);
	outside_end(begun);
	return wrong;
}

int pause(void)
{
	sigset_t mask;

	pthread_sigmask(SIG_BLOCK, NULL, &mask);
	return sigsuspend(&mask);
}

int sigwaitinfo(const sigset_t *set, siginfo_t *info)
{
	bool begun = outside_begin();
	sigset_t were;

	polling_quiet(&were);
	int number = (int)KERNEL(SYS_rt_sigtimedwait, set, info, NULL, SIGSET_BYTES);
	outside_end(begun);
	polling_heard(&were);
	return number;
}

int sigwait(const sigset_t *set, int *number)
{
	int is;

	while ((is = sigwaitinfo(set, NULL)) < 0 && errno == EINTR)
		continue;
	if (is < 0)
		return errno;
	*number = is;
	return 0;
}
