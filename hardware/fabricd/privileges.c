/* What fabricd gives up once it has everything open
 *
 * Theory of Operation
 *
 * Making devices needs privileges, running the fabric does not.  Hostile data is
 * only read after this.  From here on fabricd has no capability but the one to write
 * captures into a folder that is not root's (the testbed asks for those later), and
 * cannot gain any.  System calls are refused that it does not need and that somebody
 * who had taken it over would want: other programs, other processes' memory, mounts,
 * namespaces, modules, and sockets that are not local.
 */
#include <errno.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
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
	struct __user_cap_data_struct have[2];

	if (syscall(SYS_capget, &head, have))
		return false;
	/* only what is there can be kept: started without, there is nothing to give up */
	have[0].permitted &= 1u << CAP_DAC_OVERRIDE;
	have[0].effective &= 1u << CAP_DAC_OVERRIDE;
	have[1].permitted = have[1].effective = 0;
	have[0].inheritable = have[1].inheritable = 0;
	return !syscall(SYS_capset, &head, have);
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
 *
 * Threads inherit it, so it comes before the first.
 *
 * Return: false and f->error filled
 */
bool privileges_drop(struct fabric *f)
{
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || !capabilities_dropped() || !calls_refused())
		return config_fail(f, "cannot give up privileges: %s", strerror(errno));
	return true;
}
