/* TAP devices
 *
 * Persistent ones: closing the last descriptor of any other unregisters the
 * device and waits for a grace period of the kernel, 20 ms each.  Ours stay
 * where they are, and go with their network namespace, all at once.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/tap.h"

/* tap_open() - Create a TAP device
 * @name:	Interface name
 * @error:	Filled with what went wrong
 *
 * Return: non-blocking file descriptor, or -1
 */
int tap_open(const char *name, char *error, size_t room)
{
	struct ifreq ifr = {.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_TUN_EXCL};
	int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);

	if (fd < 0) {
		snprintf(error, room, "/dev/net/tun: %s", strerror(errno));
		return -1;
	}
	if (strlen(name) >= sizeof ifr.ifr_name) {
		snprintf(error, room, "interface name %s: longer than %zu characters", name, sizeof ifr.ifr_name - 1);
		close(fd);
		return -1;
	}
	strcpy(ifr.ifr_name, name);
	if (ioctl(fd, TUNSETIFF, &ifr) < 0) {
		snprintf(error, room, "TAP device %s: %s", name, strerror(errno));
		close(fd);
		return -1;
	}
	if (ioctl(fd, TUNSETPERSIST, 1) < 0)
		fprintf(stderr, "fabricd: TAP device %s: %s; closing it will take longer\n", name, strerror(errno));
	return fd;
}

/* tap_up() - Set up a device that is a port of a bridge, for jumbo frames
 * @name:	Interface name, not up yet: its queueing discipline takes the length from the interface
 * @frames:	How many for us to read the kernel holds before it drops any (0: its own default)
 *
 * Return: false and @error filled
 */
bool tap_up(const char *name, int frames, char *error, size_t room)
{
	struct ifreq length = {.ifr_qlen = frames}, mtu = {.ifr_mtu = TAP_MTU}, flags = {0};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	snprintf(length.ifr_name, sizeof length.ifr_name, "%s", name);
	snprintf(mtu.ifr_name, sizeof mtu.ifr_name, "%s", name);
	snprintf(flags.ifr_name, sizeof flags.ifr_name, "%s", name);
	bool done = fd >= 0 && (!frames || !ioctl(fd, SIOCSIFTXQLEN, &length)) && !ioctl(fd, SIOCSIFMTU, &mtu) &&
		    !ioctl(fd, SIOCGIFFLAGS, &flags);
	if (done) {
		flags.ifr_flags |= IFF_UP;
		done = !ioctl(fd, SIOCSIFFLAGS, &flags);
	}
	if (!done)
		snprintf(error, room, "TAP device %s: queue of %d frames, MTU %d, up: %s", name, frames, TAP_MTU, strerror(errno));
	if (fd >= 0)
		close(fd);
	return done;
}

/* tap_open_in() - Create a TAP device in another network namespace
 * @netns:	Path of the namespace, such as /proc/PID/ns/net
 * @name:	Interface name
 * @error:	Filled with what went wrong
 *
 * A device that is made in its namespace needs not be moved there, which would cost 20 ms.
 *
 * Return: non-blocking file descriptor, or -1
 */
int tap_open_in(const char *netns, const char *name, char *error, size_t room)
{
	int home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC), there = open(netns, O_RDONLY | O_CLOEXEC), fd = -1;

	if (home < 0 || there < 0 || setns(there, CLONE_NEWNET)) {
		snprintf(error, room, "network namespace %s: %s", netns, strerror(errno));
	} else {
		fd = tap_open(name, error, room);
		if (setns(home, CLONE_NEWNET)) /* never again at home: give up */
			abort();
	}
	if (home >= 0)
		close(home);
	if (there >= 0)
		close(there);
	return fd;
}
