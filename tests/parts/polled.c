/* Memory that a program polls, wherever it lies, and what else the program does with it: each case's bytes, as written
 *
 * Built by tests/fabricd/test_program_polls.py.  Each case has a child of its own: one that ends by a signal, or stands
 * still, is told so.
 */
#include <fcntl.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <x86intrin.h>

#include "hostile_verbs.h"

#define BYTES 4000
#define ROUNDS 3
#define INTERRUPTED 200 /* times, each after so much of the machine's time: */
#define EACH_NS 200000

static char *heap[64];

/* It is written to by our peer, and looked at until it is */
static void poll_at(char *to, struct ibv_mr *its, char value)
{
	struct ibv_send_wr wr = write_wr();

	memset(memory, value, 64);
	wr.wr.rdma.remote_addr = (uint64_t)to;
	wr.wr.rdma.rkey = its->rkey;
	post(wr);
	while (*(volatile char *)(to + 63) != value)
		;
	completion("the write", IBV_WC_SUCCESS);
}

static void poll_rounds(char *to)
{
	struct ibv_mr *its = ibv_reg_mr(pd, to, 64, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);

	made("region", its, 0);
	for (char i = 1; i <= ROUNDS; i++)
		poll_at(to, its, i);
}

/* Other pieces of the same pages are the program's as ever */
static void use_heap(void)
{
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < 64; i++) {
			heap[i] = realloc(heap[i], 40 + (size_t)(i * 37 + round * 111) % 900);
			memset(heap[i], i, 40);
		}
		for (int i = 0; i < 64; i += 3) {
			free(heap[i]);
			heap[i] = NULL;
		}
	}
}

static char *on_heap(void)
{
	char *p = malloc(64);

	use_heap();
	return p;
}

static void polls_heap(void)
{
	ready();
	poll_rounds(on_heap());
	use_heap();
}

static void polls_stack(void)
{
	char buffer[BYTES] = {0};

	ready();
	poll_rounds(buffer + 1000);
}

static void *on_its_stack(void *unused)
{
	polls_stack();
	return unused;
}

static void in_a_thread(void *(*does)(void *))
{
	pthread_t other;

	pthread_create(&other, NULL, does, NULL);
	pthread_join(other, NULL);
}

static void polls_a_threads_stack(void)
{
	in_a_thread(on_its_stack);
}

/* The kernel reads and writes it, too */
static void hands_it_to_the_kernel(void)
{
	int ends[2];
	char *p = on_heap();

	ready();
	poll_rounds(p);
	(void)!pipe(ends);
	said("written", (int)write(ends[1], p, 64), 64);
	poll_rounds(p);
	said("read", (int)read(ends[0], p, 64), 64);
	poll_rounds(p);
	struct iovec v = {p, 64};
	said("written in pieces", (int)writev(ends[1], &v, 1), 64);
	FILE *f = fdopen(ends[1], "w");
	setvbuf(f, p + 64 - 16, _IOFBF, 16);
	fputs("0123456789", f);
	memset(p, 0, 40);
	poll_rounds(p - 16);
	said("flushed", fflush(f), 0);
}

/* A child has its pages, and none of its regions; its parent goes on with both */
static void forks(void)
{
	char *p = on_heap();
	int state;

	ready();
	poll_rounds(p);
	pid_t child = fork();
	use_heap();
	if (!child) {
		begin();
		ready();
		poll_rounds(on_heap());
		use_heap();
		poll_rounds(p);
		raise(SIGTRAP); /* is the child's own: nobody's */
	}
	waitpid(child, &state, 0);
	said("how the child ended", WIFSIGNALED(state) ? WTERMSIG(state) : 0, SIGTRAP);
	poll_rounds(p);
}

static void counts(void)
{
	uint64_t before = __rdtsc();

	usleep(7);
	said("the counter", (int)((__rdtsc() - before) / 1000), 7);
}

static void *idle(void *unused)
{
	pause();
	return unused;
}

static struct sigaction was;
static void chained(int number, siginfo_t *info, void *context)
{
	static int rounds;

	if (rounds++) {
		printf("it came round\n");
		exit(1);
	}
	was.sa_sigaction(number, info, context);
}

/* It puts its handler in the place of ours and chains to that, and ours comes before it again: a fault of its own ends it */
static void chains(void)
{
	struct sigaction its = {.sa_sigaction = chained, .sa_flags = SA_SIGINFO};
	pthread_t other;

	pthread_create(&other, NULL, idle, NULL);
	made("region", ibv_reg_mr(pd, on_heap(), 64, 15), 0);
	sigaction(SIGSEGV, &its, &was);
	made("region", ibv_reg_mr(pd, malloc(9999), 9999, 15), 0);
	*(volatile int *)8 = 1;
}

static void caught(int number)
{
	static const char end[] = "caught\n";

	_exit(number == SIGSEGV && write(1, end, sizeof end - 1) ? 0 : 1);
}

/* A program has its own handler, set before it polls or after that */
static void handles(void)
{
	ready();
	poll_rounds(on_heap());
	signal(SIGSEGV, caught);
	counts();
	poll_rounds(on_heap());
	*(volatile int *)8 = 1;
}

static void *deaf(void *unused)
{
	sigset_t all;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, NULL);
	counts();
	polls_heap();
	return unused;
}

/* Threads of libraries block all signals, as those of UCX do */
static void blocks_signals(void)
{
	in_a_thread(deaf);
}

static int nowhere;
static volatile int came;

static void writes(int number)
{
	char byte = (char)number;

	came++;
	(void)!write(nowhere, &byte, 1);
}

/* A handler hands memory to the kernel, whatever it has interrupted */
static void is_interrupted(void)
{
	pid_t its_parent = getpid(), child;
	char *p = on_heap();

	nowhere = open("/dev/null", O_WRONLY);
	ready();
	signal(SIGUSR1, writes);
	child = fork();
	while (!child && !kill(its_parent, SIGUSR1))
		syscall(SYS_nanosleep, &(struct timespec){0, EACH_NS}, NULL);
	if (!child)
		_exit(0);
	struct ibv_mr *its = ibv_reg_mr(pd, p, 64, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	made("region", its, 0);
	int before = *looked;
	for (int i = 0; came < INTERRUPTED; i++)
		poll_at(p, its, (char)(1 + i % 100));
	kill(child, SIGKILL);
	*looked = before;
}

static void each(const char *what, void (*how)(void))
{
	int state;

	name = what;
	pid_t child = fork();
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		begin();
		how();
		exit(0);
	}
	waitpid(child, &state, 0);
	printf("%s: %s\n", what, WIFSIGNALED(state) ? strsignal(WTERMSIG(state)) : "as ever");
	fflush(stdout);
}

int main(int count, char **word)
{
	looked = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	(void)word;
	if (count > 1) { /* without the time library */
		each("handlers in a ring", chains);
		return 0;
	}
	each("heap", polls_heap);
	each("stack", polls_stack);
	each("a thread's stack", polls_a_threads_stack);
	each("the kernel", hands_it_to_the_kernel);
	each("fork", forks);
	each("a handler", handles);
	each("signals blocked", blocks_signals);
	each("a handler writes", is_interrupted);
	printf("looked at %d\n", *looked);
}
