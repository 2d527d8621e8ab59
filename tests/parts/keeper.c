/* Waits that signals, forks and other threads come between: each case's line says how it ended, at which microsecond
 *
 * Built by tests/fabricd/test_program_waits.py.  Each case has a child of its own: one that stands still is told so.
 */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SHORT_NS 300000
#define ENDED 300   /* threads: more than are kept in mind */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static sem_t semaphore;
static volatile bool stop;
static volatile int came;

static long now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static struct timespec in_us(long us)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	us += t.tv_sec * 1000000 + t.tv_nsec / 1000;
	return (struct timespec){us / 1000000, us % 1000000 * 1000};
}

static const char *name(int wrong)
{
	return !wrong ? "0" : wrong == ETIMEDOUT ? "ETIMEDOUT" : wrong == EINTR ? "EINTR" : wrong == EINVAL ? "EINVAL" : strerror(wrong);
}

static void on(int number, void (*handler)(int))
{
	sigaction(number, &(struct sigaction){.sa_handler = handler}, NULL);
}

static int timed(long us)
{
	struct timespec t = in_us(us);

	return sem_timedwait(&semaphore, &t) ? errno : 0;
}

static void *idle(void *unused)
{
	for (;;)
		pause();
	return unused;
}

static void another(void)
{
	pthread_t other;

	pthread_create(&other, NULL, idle, NULL);
	pthread_detach(other);
}

/* --- its limit is over while the thread is in a handler that sleeps --- */
static void sleeps(int number)
{
	(void)number;
	usleep(5000);
	usleep(5000);
}

static void *interrupts(void *thread)
{
	usleep(1000);
	pthread_kill(*(pthread_t *)thread, SIGUSR1);
	return NULL;
}

static void handler_sleeps(void)
{
	pthread_t self = pthread_self(), other;
	long began;

	on(SIGUSR1, sleeps);
	pthread_create(&other, NULL, interrupts, &self);
	began = now_us();
	int wrong = timed(3000);
	printf("%s after %ld", name(wrong), (now_us() - began) / 1000);
}

/* --- a handler that waits, at any instruction of a wait --- */
static void waits(int number)
{
	(void)number;
	waitpid(-1, NULL, 0);
	came++;
}

static void handler_waits(void)
{
	struct sigevent e = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
	struct itimerspec every = {{0, 1000000}, {0, 1000000}};
	timer_t timer;
	int wrong = 0;

	another();
	on(SIGUSR1, waits);
	timer_create(CLOCK_THREAD_CPUTIME_ID, &e, &timer); /* the kernel's */
	timer_settime(timer, 0, &every, NULL);
	while (came < 60 && (!wrong || wrong == EINTR)) {
		sem_post(&semaphore);
		wrong = timed(1000000);
	}
	printf("%s", name(wrong == EINTR ? 0 : wrong));
}

/* --- a child that a handler makes comes out of its parent's wait --- */
static void forks(int number)
{
	(void)number;
	came = fork() ? 1 : 2;
}

static void handler_forks(void)
{
	int state;

	another();
	on(SIGUSR1, forks);
	pid_t child = fork();
	if (!child) {
		usleep(1000);
		kill(getppid(), SIGUSR1);
		usleep(1000);
		_exit(3);
	}
	while (!came)
		waitpid(child, &state, 0);
	if (came == 1) { /* its parent: of the child's children nothing is to be said */
		waitpid(-1, &state, 0);
		waitpid(-1, &state, 0);
		printf("%d", WIFSIGNALED(state) ? -WTERMSIG(state) : WEXITSTATUS(state));
		return;
	}
	usleep(1000);
	pid_t own = fork();
	if (!own) {
		usleep(2000);
		_exit(5);
	}
	waitpid(own, &state, 0);
	_exit(WEXITSTATUS(state));
}

/* --- what is free is had, whatever the time says --- */
static void free_locks(void)
{
	const struct timespec bad = {0, 1000000000};

	printf("%s ", name(pthread_mutex_timedlock(&mutex, &bad)));
	printf("%s ", name(pthread_mutex_timedlock(&mutex, &bad)));
	printf("%s ", name(pthread_rwlock_timedrdlock(&rwlock, &bad)));
	printf("%s ", name(pthread_rwlock_timedwrlock(&rwlock, &bad)));
	printf("%s", name(pthread_join(pthread_self(), NULL) == EDEADLK ? 0 : EINVAL));
}

/* --- threads come and go, and two of the last spin --- */
static void *runs_a_little(void *unused)
{
	struct timespec t = {0};

	while (t.tv_nsec < SHORT_NS)
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return unused;
}

static void *spins(void *unused)
{
	while (!stop)
		continue;
	return unused;
}

static void many_threads(void)
{
	pthread_t others[2];

	for (int i = 0; i < ENDED; i++) {
		pthread_create(&others[0], NULL, runs_a_little, NULL);
		usleep(1); /* it is seen to run */
		pthread_join(others[0], NULL);
	}
	pthread_create(&others[0], NULL, spins, NULL);
	pthread_create(&others[1], NULL, spins, NULL);
	usleep(1000);
	usleep(1000);
	stop = true;
	pthread_join(others[0], NULL);
	pthread_join(others[1], NULL);
	printf("over");
}

static void each(const char *what, void (*how)(void))
{
	int state;

	printf("%s: ", what);
	fflush(stdout);
	pid_t child = fork();
	if (!child) {
		usleep(1); /* from here on time is emulated */
		sem_init(&semaphore, 0, 0);
		how();
		fflush(stdout);
		_exit(0);
	}
	waitpid(child, &state, 0);
	printf("%s\n", WIFSIGNALED(state) ? strsignal(WTERMSIG(state)) : "");
	fflush(stdout);
}

int main(int count, char **word)
{
	static const struct {
		const char *name;
		void (*how)(void);
	} cases[] = {{"a handler sleeps", handler_sleeps}, {"a handler waits", handler_waits}, {"a handler forks", handler_forks},
		     {"free locks", free_locks},	   {"many threads", many_threads}};

	for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++)
		if (count < 2 || !strcmp(word[1], cases[i].name))
			each(cases[i].name, cases[i].how);
	return 0;
}
