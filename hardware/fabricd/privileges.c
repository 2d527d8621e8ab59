/* What fabricd gives up once it has everything open
 *
 * Theory of Operation
 *
 * Making devices needs privileges, running the fabric does not, with either clock.
 * Hostile data is only read after this.  From here on fabricd is a user of its own,
 * has no capability, and can gain none.  It opens no file any more: what it shall write
 * is handed to it open, and Open vSwitch's sockets are its group's, in a folder that it
 * has open.  System calls are refused that it does not need and that somebody who had
 * taken it over would want: other programs, other processes' memory, mounts, namespaces,
 * modules, and sockets that are not local.
 *
 * It stays root, still without any capability, where another user would not do: one
 * that our user namespace does not have, or one from which /proc hides others' processes
 * (mounted with `hidepid`), for it looks there whether who is waited for still runs.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "engine/fabric.h"
#include "world.h"

#if defined(__x86_64__)
#define ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#endif

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define RETURN(what) BPF_STMT(BPF_RET | BPF_K, what)
#define REFUSE (SECCOMP_RET_ERRNO | EPERM)
#define NO(call) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##call, 0, 1), RETURN(REFUSE)

static bool capabilities_dropped(void)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	const struct __user_cap_data_struct none[2] = {0};

	return !syscall(SYS_capset, &head, none);
}

static bool sees_others(void)
{
	int fd = open("/proc/1/stat", O_RDONLY | O_CLOEXEC);

	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

/* Try to be that user, and if that would not do, be root again; says why then */
static bool become(unsigned user)
{
	if (setgroups(0, NULL) || setresgid(user, user, user) || seteuid(user)) {
		fprintf(stderr, "fabricd: cannot be user %u: %s; stays root, without capabilities\n", user, strerror(errno));
	} else if (!sees_others()) {
		fprintf(stderr, "fabricd: /proc hides others' processes from user %u; stays root, without capabilities\n", user);
	} else {
		return !seteuid(0) && !setresuid(user, user, user);
	}
	return !seteuid(0) && !setresgid(0, 0, 0);
}

/* Change the user; what the kernel takes away with it we need: to die with who has started us, and our own /proc */
static bool user_changed(unsigned user)
{
	int death = 0, parent = getppid();
	bool done = !prctl(PR_GET_PDEATHSIG, &death) && become(user) && !prctl(PR_SET_PDEATHSIG, death) &&
		    !prctl(PR_SET_DUMPABLE, 1);

	if (death && getppid() != parent) /* it died meanwhile */
		_exit(1);
	return done;
}

static bool calls_refused(void)
{
#ifdef ARCHITECTURE
	static struct sock_filter filter[] = {
		LOAD(arch),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCHITECTURE, 1, 0),
		RETURN(REFUSE), /* 32 bit's numbers mean other calls */
		LOAD(nr),
#ifdef __x86_64__
		BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0x40000000, 0, 1), /* so do x32's */
		RETURN(REFUSE),
#endif
		NO(execve), NO(execveat), NO(process_vm_readv), NO(process_vm_writev), NO(kcmp),
#ifndef __SANITIZE_ADDRESS__ /* whose search for leaks traces us */
		NO(ptrace),
#endif
		NO(mount), NO(umount2), NO(pivot_root), NO(chroot), NO(move_mount), NO(open_tree), NO(fsopen), NO(fsmount),
		NO(mount_setattr), NO(unshare), NO(setns), NO(open_by_handle_at), NO(name_to_handle_at),
		NO(init_module), NO(finit_module), NO(delete_module), NO(kexec_load), NO(reboot), NO(bpf),
		NO(perf_event_open), NO(userfaultfd), NO(io_uring_setup), NO(keyctl), NO(add_key), NO(request_key),
		NO(setuid), NO(setgid), NO(setreuid), NO(setregid), NO(setresuid), NO(setresgid), NO(setgroups),
		NO(swapon), NO(swapoff), NO(acct), NO(settimeofday), NO(clock_settime), NO(adjtimex), NO(sethostname),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 3),
		LOAD(args[0]),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_UNIX, 1, 0),
		RETURN(REFUSE),
		RETURN(SECCOMP_RET_ALLOW),
	};
	static const struct sock_fprog program = {.len = sizeof filter / sizeof filter[0], .filter = filter};

	return !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
#else
	return true; /* no filter was written for this kind of machine */
#endif
}

/* privileges_drop() - Keep nothing that running the fabric does not need
 * @user:	User and group to be from now on; 0: stay who we are
 *
 * Threads inherit it, so it comes before the first.
 *
 * Return: false and f->error filled
 */
bool privileges_drop(struct fabric *f, unsigned user)
{
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || (user && !user_changed(user)) || !capabilities_dropped() ||
	    !calls_refused())
		return config_fail(f, "cannot give up privileges: %s", strerror(errno));
	return true;
}
