/* Interfaces of a host, by ioctl: a program for each would take longer than all the rest (netdevice(7)) */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "holder.h"

extern char **environ;

static int any_socket(void)
{
	return socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
}

static struct ifreq about(const char *name)
{
	struct ifreq ifr = {0};

	snprintf(ifr.ifr_name, sizeof ifr.ifr_name, "%s", name);
	return ifr;
}

static bool up(int fd, const char *name)
{
	struct ifreq ifr = about(name);

	if (ioctl(fd, SIOCGIFFLAGS, &ifr))
		return false;
	ifr.ifr_flags |= IFF_UP;
	return !ioctl(fd, SIOCSIFFLAGS, &ifr);
}

bool interface_up(const char *name, char *error)
{
	int fd = any_socket();
	bool done = fd >= 0 && up(fd, name);

	if (!done)
		failed(error, name);
	if (fd >= 0)
		close(fd);
	return done;
}

/* Whole packets with real checksums: they pass through emulated hardware that does neither for us */
static void offloads_off(int fd, const char *name)
{
	static const uint32_t commands[] = {ETHTOOL_STXCSUM, ETHTOOL_STSO, ETHTOOL_SGSO, ETHTOOL_SGRO, ETHTOOL_SSG};

	for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
		struct ethtool_value value = {.cmd = commands[i]};
		struct ifreq ifr = about(name);

		ifr.ifr_data = (char *)&value;
		ioctl(fd, SIOCETHTOOL, &ifr); /* a device that never had it says so */
	}
}

static bool set_mac(int fd, const char *name, const char *mac)
{
	struct ifreq ifr = about(name);
	unsigned byte[6];

	if (sscanf(mac, "%2x:%2x:%2x:%2x:%2x:%2x", byte, byte + 1, byte + 2, byte + 3, byte + 4, byte + 5) != 6) {
		errno = EINVAL;
		return false;
	}
	ifr.ifr_hwaddr.sa_family = ARPHRD_ETHER;
	for (int i = 0; i < 6; i++)
		ifr.ifr_hwaddr.sa_data[i] = (char)byte[i];
	return !ioctl(fd, SIOCSIFHWADDR, &ifr);
}

static bool set_address(int fd, const char *name, unsigned long request, struct in_addr address)
{
	struct ifreq ifr = about(name);
	struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr = address};

	memcpy(&ifr.ifr_addr, &in, sizeof in);
	return !ioctl(fd, request, &ifr);
}

static bool set_up(int fd, const char *name, const char *mac, int mtu, const char *ip, int prefix)
{
	struct ifreq ifr = about(name);
	struct in_addr address, mask = {.s_addr = prefix > 0 ? htonl(0xffffffffu << (32 - prefix)) : 0};

	if (prefix < 0 || prefix > 32 || inet_pton(AF_INET, ip, &address) != 1) {
		errno = EINVAL;
		return false;
	}
	ifr.ifr_mtu = mtu;
	return set_mac(fd, name, mac) && !ioctl(fd, SIOCSIFMTU, &ifr) && set_address(fd, name, SIOCSIFADDR, address) &&
	       set_address(fd, name, SIOCSIFNETMASK, mask) && up(fd, name);
}

/* Lines for `ip -batch`; what that says of errors goes into @error */
static void add_routes(const char *lines, char *error)
{
	char *argv[] = {"ip", "-batch", "-", NULL};
	int in = memfd_create("routes", MFD_CLOEXEC), out = memfd_create("errors", MFD_CLOEXEC);
	posix_spawn_file_actions_t actions;
	pid_t pid;
	int status = 0;
	ssize_t n = 0;

	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, in, 0);
	posix_spawn_file_actions_adddup2(&actions, out, 1);
	posix_spawn_file_actions_adddup2(&actions, out, 2);
	if (in < 0 || out < 0 || dprintf(in, "%s", lines) < 0 || lseek(in, 0, SEEK_SET) < 0 ||
	    (errno = posix_spawnp(&pid, argv[0], &actions, NULL, argv, environ)) || waitpid(pid, &status, 0) < 0) {
		failed(error, "ip -batch");
	} else if (status) {
		n = pread(out, error, ERROR_ROOM - 1, 0);
		error[n > 0 ? n : 0] = '\0';
		if (n <= 0)
			snprintf(error, ERROR_ROOM, "ip -batch has failed");
	}
	posix_spawn_file_actions_destroy(&actions);
	if (in >= 0)
		close(in);
	if (out >= 0)
		close(out);
}

/* interfaces_configure() - Set up interfaces, then add routes
 * @wanted:	{"links": [{"name", "mac", "mtu", "ip", "prefix"}], "routes": lines for ip -batch}
 * @error:	Filled with what went wrong, empty if nothing did
 */
void interfaces_configure(const json_t *wanted, char *error)
{
	const char *name, *mac, *ip, *routes = json_string_value(json_object_get(wanted, "routes"));
	int mtu, prefix, fd = any_socket();
	size_t i;
	json_t *link;

	error[0] = '\0';
	json_array_foreach (json_object_get(wanted, "links"), i, link) {
		if (json_unpack(link, "{s:s, s:s, s:i, s:s, s:i}", "name", &name, "mac", &mac, "mtu", &mtu, "ip", &ip,
				"prefix", &prefix)) {
			snprintf(error, ERROR_ROOM, "a link is not described as it should be");
			break;
		}
		if (!set_up(fd, name, mac, mtu, ip, prefix)) {
			failed(error, name);
			break;
		}
		offloads_off(fd, name);
	}
	if (fd >= 0)
		close(fd);
	if (!error[0] && routes && routes[0])
		add_routes(routes, error);
}
