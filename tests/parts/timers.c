/* Timers as their man pages have them; each line is what one of them did, in microseconds since it was set */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t came;
static int value;

static void on_signal(int number, siginfo_t *info, void *context)
{
	(void)number;
	(void)context;
	came++;
	value = info->si_value.sival_int;
}

static long now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static void with_signals(void)
{
	struct sigaction a = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO};
	struct itimerval every = {{0, 2000}, {0, 1000}}, off = {0}, was;
	long began = now_us();

	sigaction(SIGALRM, &a, NULL);
	printf("alarm %u\n", alarm(3));
	unsigned left = sleep(10);
	printf("sleep interrupted %ld left %u\n", now_us() - began, left);
	alarm(5);
	printf("alarm was %u\n", alarm(0));
	came = 0;
	began = now_us();
	setitimer(ITIMER_REAL, &every, NULL);
	for (int i = 0; i < 4; i++)
		pause();
	getitimer(ITIMER_REAL, &was);
	setitimer(ITIMER_REAL, &off, NULL);
	printf("interval %d in %ld, next in %ld\n", (int)came, now_us() - began, (long)was.it_value.tv_usec);
	usleep(10000);
	printf("then none %d\n", (int)came);
}

static void with_posix_timers(void)
{
	struct sigaction a = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO};
	struct sigevent e = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1, .sigev_value.sival_int = 42};
	struct itimerspec in = {.it_value.tv_nsec = 500000}, left;
	struct timespec t = {0, 2000000}, rest;
	timer_t timer;
	long began;

	sigaction(SIGUSR1, &a, NULL);
	timer_create(CLOCK_MONOTONIC, &e, &timer);
	came = 0;
	began = now_us();
	timer_settime(timer, 0, &in, NULL);
	timer_gettime(timer, &left);
	int wrong = nanosleep(&t, &rest) ? errno : 0;
	printf("timer %d value %d after %ld of %ld, %s with %ld left\n", (int)came, value, now_us() - began, left.it_value.tv_nsec / 1000 + 1,
	       wrong == EINTR ? "EINTR" : "no error", rest.tv_nsec / 1000);
	clock_gettime(CLOCK_MONOTONIC, &t);
	in = (struct itimerspec){.it_value = {t.tv_sec + 1, t.tv_nsec}};
	began = now_us();
	timer_settime(timer, TIMER_ABSTIME, &in, NULL);
	wrong = poll(NULL, 0, -1) ? errno : 0;
	printf("absolute after %ld, poll %s\n", now_us() - began, wrong == EINTR ? "EINTR" : "no error");
	timer_delete(timer);
	printf("deleted %d\n", timer_settime(timer, 0, &in, NULL));
}

static void with_descriptors(void)
{
	struct itimerspec in = {{0, 1000000}, {0, 3000000}};
	int fd = timerfd_create(CLOCK_REALTIME, TFD_NONBLOCK), set = epoll_create1(0);
	struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
	uint64_t count = 0;
	long began = now_us();

	epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
	timerfd_settime(fd, 0, &in, NULL);
	printf("too early %s\n", read(fd, &count, sizeof count) < 0 && errno == EAGAIN ? "EAGAIN" : "read");
	int ready = epoll_wait(set, &event, 1, -1);
	printf("epoll %d after %ld\n", ready, now_us() - began);
	usleep(2500);
	printf("read %zd", read(fd, &count, sizeof count));
	printf(" count %lu\n", (unsigned long)count);
	close(fd);
	fd = timerfd_create(CLOCK_MONOTONIC, 0);
	in.it_interval.tv_nsec = 0;
	began = now_us();
	timerfd_settime(fd, 0, &in, NULL);
	printf("blocking read %zd", read(fd, &count, sizeof count));
	printf(" count %lu after %ld\n", (unsigned long)count, now_us() - began);
	close(fd);
}

int main(void)
{
	with_signals();
	with_posix_timers();
	with_descriptors();
	return 0;
}
