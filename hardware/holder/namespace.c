/* Network and mount namespaces */
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "holder.h"

static bool write_to(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	bool done = fd >= 0 && dprintf(fd, "%s", text) > 0;

	if (fd >= 0)
		close(fd);
	return done;
}

/* In the network namespace that we are in now: the loopback is up, and no interface asks for routers */
static bool furnish(char *error)
{
	static const char *const scopes[] = {"all", "default"};
	char path[64];

	for (size_t i = 0; i < sizeof scopes / sizeof *scopes; i++) {
		snprintf(path, sizeof path, "/proc/sys/net/ipv6/conf/%s/disable_ipv6", scopes[i]);
		if (!access(path, F_OK) && !write_to(path, "1"))
			return failed(error, path);
	}
	return interface_up("lo", error);
}

/* network_enter() - Enter a new network namespace, of our own user namespace */
bool network_enter(char *error)
{
	if (unshare(CLONE_NEWNET))
		return failed(error, "unshare");
	return furnish(error);
}

/* A process in a user and a network namespace of its own, that ends when @done is closed */
static int start_inside(int done[2])
{
	int pid = (int)syscall(SYS_clone, (unsigned long)(CLONE_NEWUSER | CLONE_NEWNET | SIGCHLD), NULL, NULL, NULL, 0ul);

	if (pid == 0) {
		char byte;

		close(done[1]);
		(void)!read(done[0], &byte, 1);
		_exit(0);
	}
	return pid;
}

/* Enter the network namespace of @pid and keep its user namespace as descriptor USERS */
static bool take_over(int pid, long ids)
{
	char path[64], map[64];
	int network, users;
	bool done;

	snprintf(map, sizeof map, "0 %ld %ld", ids, IDS);
	snprintf(path, sizeof path, "/proc/%d/uid_map", pid);
	if (!write_to(path, map))
		return false;
	snprintf(path, sizeof path, "/proc/%d/gid_map", pid);
	if (!write_to(path, map))
		return false;
	snprintf(path, sizeof path, "/proc/%d/ns/net", pid);
	network = open(path, O_RDONLY | O_CLOEXEC);
	snprintf(path, sizeof path, "/proc/%d/ns/user", pid);
	users = open(path, O_RDONLY | O_CLOEXEC);
	done = network >= 0 && users >= 0 && !setns(network, CLONE_NEWNET) && dup2(users, USERS) == USERS;
	if (network >= 0)
		close(network);
	if (users >= 0)
		close(users);
	return done;
}

/* network_enter_of() - Enter a new network namespace that belongs to a new user namespace
 * @ids:	The first of its users, as seen from here
 *
 * We stay outside of the user namespace and hold it as descriptor USERS.  Whoever is root in there may have the
 * network's capabilities, and no others.
 *
 * Return: false if the kernel refuses
 */
bool network_enter_of(long ids)
{
	char error[ERROR_ROOM];
	int done[2], pid;
	bool entered = false;

	if (pipe2(done, O_CLOEXEC))
		return false;
	pid = start_inside(done);
	close(done[0]);
	if (pid > 0)
		entered = take_over(pid, ids);
	close(done[1]);
	if (pid > 0)
		waitpid(pid, NULL, 0);
	return entered && furnish(error);
}

/* mounts_own() - A new mount namespace
 *
 * Mounts still come in from outside; /sys shows our network namespace's devices.
 */
bool mounts_own(char *error)
{
	if (unshare(CLONE_NEWNS))
		return failed(error, "unshare");
	if (mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL))
		return failed(error, "mount --make-rslave /");
	if (mount("sysfs", "/sys", "sysfs", 0, NULL))
		return failed(error, "mount /sys");
	return true;
}
