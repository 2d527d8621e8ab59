/* TAP devices that are socket pairs, and behind them an Open vSwitch that knows where everybody is. */
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/tap.h"
#include "harness.h"

#define TAPS 8
#define FRAME_BYTES 16384

static struct {
	char name[16];
	int fd; /* Open vSwitch's end */
} taps[TAPS];
static unsigned tap_count;
static uint8_t last[FRAME_BYTES];
static size_t last_bytes;
bool ovs_silent;

int tap_open(const char *name, char *error, size_t room)
{
	int fds[2];

	if (tap_count == TAPS || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds)) {
		snprintf(error, room, "no more devices");
		return -1;
	}
	snprintf(taps[tap_count].name, sizeof taps[tap_count].name, "%s", name);
	taps[tap_count++].fd = fds[1];
	return fds[0];
}

bool tap_up(const char *name, int frames, char *error, size_t room)
{
	(void)name, (void)frames, (void)error, (void)room;
	return true;
}

int tap_open_in(const char *netns, const char *name, char *error, size_t room)
{
	(void)netns;
	return tap_open(name, error, room);
}

void taps_close(void)
{
	while (tap_count)
		close(taps[--tap_count].fd);
	last_bytes = 0;
	ovs_silent = false;
}

/* ovs_emits() - A frame comes out at a port, from 1; 0 is the fence's */
void ovs_emits(unsigned port, const uint8_t *data, size_t len)
{
	char name[16];

	snprintf(name, sizeof name, port ? "port%u" : "fence", port);
	for (unsigned i = 0; i < tap_count; i++)
		if (!strcmp(taps[i].name, name) && len)
			send(taps[i].fd, data, len, MSG_DONTWAIT | MSG_NOSIGNAL);
}

const uint8_t *ovs_last(size_t *len)
{
	*len = last_bytes;
	return last;
}

/* ovs_turn() - Everything that was handed over goes where its address says: rank r is at port r + 1, then the accelerator */
void ovs_turn(void)
{
	static uint8_t frame[FRAME_BYTES];

	for (unsigned i = 0; i < tap_count; i++)
		for (ssize_t n; (n = recv(taps[i].fd, frame, sizeof frame, MSG_DONTWAIT)) > 0;) {
			if (!strcmp(taps[i].name, "fence")) {
				ovs_emits(0, frame, (size_t)n);
				continue;
			}
			memcpy(last, frame, (size_t)n);
			last_bytes = (size_t)n;
			if (ovs_silent)
				continue;
			if (frame[0] & 1)
				for (unsigned port = 1; port <= RANKS; port++)
					ovs_emits(port, frame, (size_t)n);
			else if (frame[5] <= RANKS)
				ovs_emits(frame[5] + 1u, frame, (size_t)n);
		}
}
