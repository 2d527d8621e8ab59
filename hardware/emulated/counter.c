/* The time-stamp counter: rdtsc traps (PR_SET_TSC), and is answered with nanoseconds of emulated time
 *
 * The trap outlasts exec, and the loader of the next program reads the counter before we are there: so it is taken off
 * before a program is executed.
 */
#include "emulated.h"
#include "keeper.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

extern char **environ;
static bool trapped;
static uint64_t began; /* when the counter was 0: the same program counts the same, whenever it is started */

#if defined(__x86_64__)
/* Bytes of the instruction that read the counter; 0: it was another */
static int counter_read(const uint8_t *at)
{
	static const uint8_t rdtsc[] = {0x0f, 0x31}, rdtscp[] = {0x0f, 0x01, 0xf9};

	if (!memcmp(at, rdtsc, sizeof rdtsc))
		return sizeof rdtsc;
	return memcmp(at, rdtscp, sizeof rdtscp) ? 0 : sizeof rdtscp;
}

static bool reads(siginfo_t *info, void *context)
{
	greg_t *r = ((ucontext_t *)context)->uc_mcontext.gregs;
	int bytes = info->si_code == SI_KERNEL ? counter_read((const uint8_t *)r[REG_RIP]) : 0;

	if (!bytes)
		return false;
	uint64_t ns = (railbed_now(COUNTER_PS) - began) / PS_PER_NS;
	r[REG_RAX] = (greg_t)(ns & 0xffffffff);
	r[REG_RDX] = (greg_t)(ns >> 32);
	if (bytes == 3)
		r[REG_RCX] = 0;
	r[REG_RIP] += bytes;
	return true;
}

/* counter_trap() - From now on the counter counts emulated time */
void counter_trap(void)
{
	railbed_faults(reads);
	began = railbed_now(0);
	trapped = !prctl(PR_SET_TSC, PR_TSC_SIGSEGV);
	if (!trapped)
		fprintf(stderr, "railbed: the time-stamp counter cannot be emulated here: a program that reads it shows other times\n");
}

static void trap(bool on)
{
	polling_pause(); /* what another program is to be given, the kernel reads */
	if (trapped)
		prctl(PR_SET_TSC, on ? PR_TSC_SIGSEGV : PR_TSC_ENABLE);
}
#else
void counter_trap(void)
{
}

static void trap(bool on)
{
	(void)on;
}
#endif

#define REAL(name)                                                                                                          \
	static __typeof__(&name) real;                                                                                      \
	if (!real)                                                                                                          \
	*(void **)&real = dlsym(RTLD_NEXT, #name)

int execve(const char *path, char *const argv[], char *const envp[])
{
	trap(false);
	int r = (int)syscall(SYS_execve, path, argv, envp);
	trap(true);
	return r;
}

int execv(const char *path, char *const argv[])
{
	return execve(path, argv, environ);
}

int execvpe(const char *file, char *const argv[], char *const envp[])
{
	REAL(execvpe);
	trap(false);
	int r = real(file, argv, envp);
	trap(true);
	return r;
}

int execvp(const char *file, char *const argv[])
{
	return execvpe(file, argv, environ);
}

int execveat(int fd, const char *path, char *const argv[], char *const envp[], int flags)
{
	trap(false);
	int r = (int)syscall(SYS_execveat, fd, path, argv, envp, flags);
	trap(true);
	return r;
}

int fexecve(int fd, char *const argv[], char *const envp[])
{
	return execveat(fd, "", argv, envp, AT_EMPTY_PATH);
}

/* The words of a call that has them one by one, in an array of its own, and what is behind them */
#define WORDS(first, argv)                                                                                                  \
	va_list words, counted;                                                                                             \
	size_t n = 1;                                                                                                       \
	va_start(words, first);                                                                                             \
	va_copy(counted, words);                                                                                            \
	while (va_arg(counted, char *))                                                                                     \
		n++;                                                                                                        \
	va_end(counted);                                                                                                    \
	char *argv[n + 1];                                                                                                  \
	argv[0] = (char *)(uintptr_t)(first);                                                                               \
	for (size_t i = 1; i <= n; i++)                                                                                     \
		argv[i] = va_arg(words, char *)

int execl(const char *path, const char *first, ...)
{
	WORDS(first, argv);
	va_end(words);
	return execve(path, argv, environ);
}

int execlp(const char *file, const char *first, ...)
{
	WORDS(first, argv);
	va_end(words);
	return execvpe(file, argv, environ);
}

int execle(const char *path, const char *first, ...)
{
	WORDS(first, argv);
	char *const *envp = va_arg(words, char *const *);
	va_end(words);
	return execve(path, argv, envp);
}

int posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *attr,
		char *const argv[], char *const envp[])
{
	REAL(posix_spawn);
	trap(false); /* a child has what its parent has now */
	int r = real(pid, path, actions, attr, argv, envp);
	trap(true);
	return r;
}

int posix_spawnp(pid_t *pid, const char *file, const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *attr,
		 char *const argv[], char *const envp[])
{
	REAL(posix_spawnp);
	trap(false);
	int r = real(pid, file, actions, attr, argv, envp);
	trap(true);
	return r;
}

int system(const char *line)
{
	REAL(system);
	trap(false);
	bool begun = outside_begin();
	int r = real(line);
	outside_end(begun);
	trap(true);
	return r;
}

FILE *popen(const char *line, const char *mode)
{
	REAL(popen);
	trap(false);
	FILE *f = real(line, mode);
	trap(true);
	return f;
}

/* The C library waits within for the command to end */
int pclose(FILE *f)
{
	REAL(pclose);
	bool begun = outside_begin();
	int r = real(f);
	outside_end(begun);
	return r;
}

static void activated(void)
{
	clock_begins();
	counter_trap();
	polling_begin();
}

__attribute__((constructor)) static void begin(void)
{
	railbed_activate(activated);
}
