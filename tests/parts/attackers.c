/* Threads that meet in the same queue pair, completion channel or device, and programs that take a descriptor with them
 *
 * Built by tests/fabricd/test_verbs_attackers.py.  Each case has a child of its own: one that ends by a signal is told so.
 */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

#include "hostile_verbs.h"

#define THREADS 4
#define EACH 25
#define UNHEARD 600 /* more than a small pipe has room for */

static struct ibv_comp_channel *channel;

/* The queue pair's completions are told by a channel */
static void with_channel(void)
{
	struct ibv_qp_init_attr init = wanted(IBV_QPT_RC);

	channel = ibv_create_comp_channel(c);
	init.send_cq = init.recv_cq = cq = ibv_create_cq(c, 64, NULL, channel, 0);
	qp = ibv_create_qp(pd, &init);
	said("ready", ready(), 0);
}

static void little(void)
{
	usleep(100);
}

static void never_blocks(int fd)
{
	fcntl(fd, F_SETFL, O_NONBLOCK);
}

/* --- one queue pair --- */
static _Atomic int posted, done;

static void *posts(void *unused)
{
	struct ibv_wc wc;

	for (int i = 0; i < EACH;) {
		struct ibv_sge its = {(uint64_t)memory, 64, mr->lkey};
		struct ibv_send_wr wr = write_wr(), *bad;
		wr.sg_list = &its;
		int wrong = ibv_post_send(qp, &wr, &bad);
		posted += !wrong;
		i += !wrong;
		int got = ibv_poll_cq(cq, 1, &wc);
		if (got < 0)
			break;
		done += got && wc.status == IBV_WC_SUCCESS;
	}
	return unused;
}

static void in_threads(void)
{
	pthread_t others[THREADS];
	struct ibv_wc wc;

	to(IBV_QPS_RESET, IBV_QP_STATE);
	said("ready", ready(), 0);
	for (int i = 0; i < THREADS; i++)
		pthread_create(&others[i], NULL, posts, NULL);
	for (int i = 0; i < THREADS; i++)
		pthread_join(others[i], NULL);
	for (int got = 0; done < posted && got >= 0; done += got == 1 && wc.status == IBV_WC_SUCCESS)
		got = ibv_poll_cq(cq, 1, &wc);
	said("posted", posted, THREADS * EACH);
	said("done", done, THREADS * EACH);
}

/* --- channels --- */
static _Atomic int heard;

static void *listens(void *number)
{
	struct ibv_cq *of;
	void *context;
	int wrong = ibv_get_cq_event(channel, &of, &context) ? errno : 0;

	*(int *)number = wrong;
	if (!wrong) {
		ibv_ack_cq_events(of, 1);
		heard++;
	}
	return number;
}

static void two_listen(void)
{
	pthread_t others[2];
	int wrong[2] = {99, 99};
	struct ibv_wc wc;

	with_channel();
	for (int i = 0; i < 2; i++)
		pthread_create(&others[i], NULL, listens, &wrong[i]);
	for (int i = 0; i < 2; i++) {
		ibv_req_notify_cq(cq, 0);
		post(write_wr());
		while (heard <= i)
			little();
		while (ibv_poll_cq(cq, 1, &wc) == 1)
			;
	}
	for (int i = 0; i < 2; i++) {
		pthread_join(others[i], NULL);
		said("heard", wrong[i], 0);
	}
}

static void is_destroyed(void)
{
	pthread_t other;
	int wrong = 99;

	channel = ibv_create_comp_channel(c);
	pthread_create(&other, NULL, listens, &wrong);
	little();
	said("destroyed", ibv_destroy_comp_channel(channel), 0);
	pthread_join(other, NULL);
	said("of one that is gone", wrong, EBADF);
}

/* Of a queue that is destroyed nobody hears, nor of one that has its place */
static void is_stale(void)
{
	struct ibv_cq *of;
	void *context;
	struct ibv_cq *others[8];

	with_channel();
	never_blocks(channel->fd);
	ibv_req_notify_cq(cq, 0);
	post(write_wr());
	completion("its write", IBV_WC_SUCCESS);
	ibv_destroy_qp(qp);
	said("told", poll(&(struct pollfd){.fd = channel->fd, .events = POLLIN}, 1, 0), 1);
	said("destroyed", ibv_destroy_cq(cq), 0);
	for (int i = 0; i < 8; i++)
		others[i] = ibv_create_cq(c, 64, NULL, channel, 0);
	errno = 0;
	said("no event", ibv_get_cq_event(channel, &of, &context), -1);
	said("why", errno, EAGAIN);
	for (int i = 0; i < 8; i++)
		ibv_destroy_cq(others[i]);
	said("its channel", ibv_destroy_comp_channel(channel), 0);
	cq = ibv_create_cq(c, 64, NULL, NULL, 0);
}

/* Who destroys a queue waits until all that was told of it is acknowledged */
static _Atomic bool gone;

static void *destroys(void *its)
{
	said("destroyed", ibv_destroy_cq(its), 0);
	gone = true;
	return NULL;
}

static void is_acknowledged(void)
{
	struct ibv_cq *of;
	void *context;
	pthread_t other;

	with_channel();
	ibv_req_notify_cq(cq, 0);
	post(write_wr());
	said("told", ibv_get_cq_event(channel, &of, &context), 0);
	ibv_destroy_qp(qp);
	pthread_create(&other, NULL, destroys, of);
	usleep(1000);
	said("not yet", gone, 0);
	ibv_ack_cq_events(of, 1);
	pthread_join(other, NULL);
	said("then", gone, 1);
	cq = ibv_create_cq(c, 64, NULL, NULL, 0);
}

static void nobody_listens(void)
{
	struct ibv_wc wc;

	with_channel();
	fcntl(channel->fd, F_SETPIPE_SZ, 4096);
	for (int i = 0; i < UNHEARD; i++) {
		ibv_req_notify_cq(cq, 0);
		post(write_wr());
		while (!ibv_poll_cq(cq, 1, &wc))
			;
	}
	said("done", wc.status, 0);
}

/* --- threads that are cancelled where the manuals have a read --- */
static void *listens_to_device(void *unused)
{
	struct ibv_async_event event;

	ibv_get_async_event(c, &event);
	return unused;
}

static void is_cancelled(void)
{
	void *(*const how[])(void *) = {listens, listens_to_device};
	pthread_t others[2];
	int wrong;
	void *end;

	with_channel();
	for (int i = 0; i < 2; i++)
		pthread_create(&others[i], NULL, how[i], &wrong);
	little();
	for (int i = 0; i < 2; i++) {
		pthread_cancel(others[i]);
		pthread_join(others[i], &end);
		said("cancelled", end == PTHREAD_CANCELED, 1);
	}
}

/* --- descriptors --- */
static void is_duplicated(void)
{
	struct ibv_cq *of;
	void *context;

	with_channel();
	struct pollfd p = {.fd = dup(channel->fd), .events = POLLIN}, a = {.fd = dup(c->async_fd), .events = POLLIN};
	ibv_req_notify_cq(cq, 0);
	post(write_wr());
	said("the channel's", poll(&p, 1, -1), 1);
	said("the device's", poll(&a, 1, 0), 0);
	said("told", ibv_get_cq_event(channel, &of, &context), 0);
	said("over", poll(&p, 1, 0), 0);
	ibv_ack_cq_events(of, 1);
	close(p.fd);
	close(a.fd);
}

/* Another program takes its place, whose loader reads the time-stamp counter */
static void executes(int how)
{
	char *const environment[] = {NULL}, *const words[] = {"true", NULL};
	pid_t child = fork();
	int state;

	if (!child) {
		begin();
		said("ready", ready(), 0);
		ibv_create_comp_channel(c);
		(void)__builtin_ia32_rdtsc();
		switch (how) {
		case 0: execl("/bin/true", "true", NULL); break;
		case 1: execlp("true", "true", NULL); break;
		case 2: execle("/bin/true", "true", NULL, environment); break;
		case 3: fexecve(open("/bin/true", O_RDONLY), words, environment); break;
		case 4: execveat(AT_FDCWD, "/bin/true", words, environment, 0); break;
		case 5: execl("/none", "none", NULL); _exit(__builtin_ia32_rdtsc() ? 0 : 1);
		}
		_exit(9);
	}
	waitpid(child, &state, 0);
	said("another program", WIFSIGNALED(state) ? -1 : WEXITSTATUS(state), 0);
}

static void another_program(void)
{
	for (int how = 0; how < 6; how++)
		executes(how);
}

/* Parent and child go on, each with what is its own */
static void both_go_on(void)
{
	int state;

	said("ready", ready(), 0);
	pid_t child = fork();
	if (!child) {
		begin();
		posted = done = 0;
	}
	in_threads();
	if (!child)
		exit(0);
	waitpid(child, &state, 0);
	said("the child", state, 0);
}

static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {{"threads", in_threads},	    {"two listen", two_listen},	    {"destroyed", is_destroyed},  {"stale", is_stale},
	     {"acknowledged", is_acknowledged}, {"nobody listens", nobody_listens}, {"cancelled", is_cancelled}, {"duplicated", is_duplicated},
	     {"another program", another_program}, {"both go on", both_go_on}};

int main(int count, char **word)
{
	looked = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		int state;
		name = cases[i].name;
		if (count > 1 && strcmp(word[1], name))
			continue;
		pid_t child = fork();
		if (!child) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			begin();
			cases[i].run();
			end();
			exit(0);
		}
		waitpid(child, &state, 0);
		printf("%s: %s\n", name, WIFSIGNALED(state) ? strsignal(WTERMSIG(state)) : WEXITSTATUS(state) ? "wrong" : "as ever");
		fflush(stdout);
	}
	return 0;
}
