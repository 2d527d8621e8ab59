/* Signals and the calls that wait, as their man pages have it: each line is one call, how it ended, and how often the handler ran */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t came;

static void on_signal(int number)
{
	struct timespec t;

	(void)number;
	clock_gettime(CLOCK_REALTIME, &t); /* as one may */
	came++;
}

static void say(const char *what, int result)
{
	printf("%s %s, %d\n", what, result < 0 ? (errno == EINTR ? "EINTR" : "wrong") : result ? "ready" : "over", (int)came);
	came = 0;
}

int main(void)
{
	struct sigaction a = {.sa_handler = on_signal};
	struct timespec little = {0, 200000}, much = {300, 0}, t;
	struct epoll_event event;
	sigset_t none, usr1, usr2;
	int set = epoll_create1(0), ends[2];
	char byte;

	sigemptyset(&none);
	sigemptyset(&usr1);
	sigaddset(&usr1, SIGUSR1);
	sigemptyset(&usr2);
	sigaddset(&usr2, SIGUSR2);
	sigaction(SIGUSR1, &a, NULL);
	a.sa_flags = SA_RESTART;
	sigaction(SIGUSR2, &a, NULL);
	pipe(ends);
	nanosleep(&little, NULL); /* from here on time is emulated */
	sigprocmask(SIG_BLOCK, &usr1, NULL);

	raise(SIGUSR1);
	say("poll, blocked", poll(NULL, 0, 1));
	say("ppoll, blocked", ppoll(NULL, 0, &little, &usr1));
	say("ppoll, let in", ppoll(NULL, 0, NULL, &none));
	raise(SIGUSR1);
	say("pselect, let in", pselect(0, NULL, NULL, NULL, NULL, &none));
	raise(SIGUSR1);
	say("epoll_pwait, let in", epoll_pwait(set, &event, 1, -1, &usr2));
	raise(SIGUSR1);
	write(ends[1], "x", 1);
	say("ppoll, ready first", ppoll(&(struct pollfd){.fd = ends[0], .events = POLLIN}, 1, NULL, &none));
	say("ppoll, then", ppoll(NULL, 0, &little, &none));

	/* A child sends it 300 s later, with SA_RESTART, and goes on for as long as that is not dealt with: time stands meanwhile */
	volatile int *dealt = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t parent = getpid(), child = fork();
	if (!child) {
		for (int i = 1; i <= 2; i++) {
			nanosleep(&little, NULL);
			write(ends[1], "x", 1);
			while (*dealt < 2 * i - 1)
				continue;
			nanosleep(&much, NULL);
			kill(parent, SIGUSR2);
			while (*dealt < 2 * i)
				continue;
		}
		_exit(0);
	}
	read(ends[0], &byte, 1);
	read(ends[0], &byte, 1);
	*dealt = 1;
	say("poll, from elsewhere", poll(NULL, 0, 1000000));
	*dealt = 2;
	read(ends[0], &byte, 1);
	t = (struct timespec){1000, 0};
	*dealt = 3;
	say("nanosleep, from elsewhere", nanosleep(&t, &t));
	*dealt = 4;
	printf("left %ld\n", (long)(t.tv_sec + (t.tv_nsec + 500000000) / 1000000000));
	waitpid(child, NULL, 0);
	return 0;
}
