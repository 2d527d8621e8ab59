/* Preloaded: every second look at a program's socket says that the peer has closed it with something unread
 *
 * The kernel says so once, at any time, and before what the peer has sent.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/syscall.h>

long syscall(long number, ...)
{
	static long (*real)(long, ...);
	static unsigned looks;
	va_list rest;
	long a[6];

	va_start(rest, number);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(rest, long);
	va_end(rest);
	if (!real)
		*(void **)&real = dlsym(RTLD_NEXT, "syscall");
	bool looks_at = number == SYS_recvmsg || (number == SYS_recvfrom && a[3] & MSG_DONTWAIT); /* not what waits for fabricd */
	if (looks_at && ++looks % 2) {
		errno = ECONNRESET;
		return -1;
	}
	return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
