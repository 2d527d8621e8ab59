/* fabricd: the emulated hardware of one fabric.  See fabricd(8). */
#include <errno.h>
#include <getopt.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/close_later.h"
#include "base/copies.h"
#include "config/config.h"
#include "control/control.h"
#include "engine/clock.h"
#include "engine/fabric.h"
#include "loop.h"
#include "plugin/plugin.h"
#include "worker/worker.h"
#include "windows.h"
#include "world.h"

static struct fabric fabric = {.control_fd = -1};

static void on_signal(int number)
{
	(void)number;
	fabric.stop = true;
}

static int not_ready(const char *why)
{
	json_t *o = json_pack("{s:b, s:s}", "ready", 0, "error", why);

	json_dumpf(o, stdout, JSON_COMPACT);
	putchar('\n');
	json_decref(o);
	return 1;
}

static void usage(void)
{
	fputs("usage: fabricd --config FILE --control SOCKET --workers DIR [--user ID] [--fifo]\n", stderr);
	exit(2);
}

static unsigned number(const char *text)
{
	unsigned n;

	if (sscanf(text, "%u", &n) != 1)
		usage();
	return n;
}

static void prepare_process(void)
{
	struct rlimit files;
	struct sigaction act = {.sa_handler = on_signal};

	if (!getrlimit(RLIMIT_NOFILE, &files)) { /* TAP devices, workers, and what those send us */
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	sigaction(SIGTERM, &act, NULL);
	sigaction(SIGINT, &act, NULL);
	signal(SIGPIPE, SIG_IGN);
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{"config", required_argument, NULL, 'c'},  {"control", required_argument, NULL, 's'},
		{"workers", required_argument, NULL, 'w'}, {"user", required_argument, NULL, 'u'},
		{"fifo", no_argument, NULL, 'f'},	   {NULL, 0, NULL, 0},
	};
	struct fabric *f = &fabric;
	const char *config = NULL, *control = NULL, *workers = NULL;
	unsigned user = 0;
	bool fifo = false;
	json_error_t error;

	for (int o; (o = getopt_long(argc, argv, "", options, NULL)) != -1;)
		switch (o) {
		case 'c': config = optarg; break;
		case 's': control = optarg; break;
		case 'w': workers = optarg; break;
		case 'u': user = number(optarg); break;
		case 'f': fifo = true; break;
		default: usage();
		}
	if (!config || !control || !workers || optind != argc)
		usage();

	prepare_process();
	world_join(f);
	f->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	f->config = json_load_file(config, JSON_REJECT_DUPLICATES, &error);
	if (!f->config) {
		snprintf(f->error, sizeof f->error, "%s:%d: %s", config, error.line, error.text);
		return not_ready(f->error);
	}
	if (fifo && sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){.sched_priority = 1}))
		fprintf(stderr, "fabricd: --fifo: %s; going on without\n", strerror(errno));
	if (!plugins_open(f) || !config_load(f, f->config) || !division_load(f) || !control_open(f, control) || !workers_open(f, workers) ||
	    !privileges_drop(f, user) || !plugins_load(f)) {
		not_ready(f->error);
		fabric_free(f);
		return 1;
	}
	if (!close_later_start())
		fputs("fabricd: no threads to close files and to unmap memory in: a worker may hold up the fabric\n", stderr);
	if (f->clock.mode == CLOCK_VIRTUAL)
		copies_start(); /* without it the event loop copies */
	clock_workers_changed(f);
	if (f->clock.mode == CLOCK_REAL)
		clock_start_real(f);
	puts("{\"ready\": true}");
	fflush(stdout);
	fabric_run(f);
	fabric_free(f);
	close(f->epoll_fd);
	return f->failed;
}
