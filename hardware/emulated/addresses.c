/* The same addresses each time: a program that prints where its memory lies prints the same again
 *
 * Whether the kernel draws addresses is decided when a program is executed, so it is executed once more; what it starts
 * inherits that.
 */
#include "emulated.h"

#include <sys/personality.h>
#include <sys/syscall.h>
#include <unistd.h>

__attribute__((constructor)) static void begin(int count, char **argv, char **environment)
{
	int is = personality(0xffffffff);

	(void)count;
	if (is < 0 || is & ADDR_NO_RANDOMIZE || personality((unsigned)is | ADDR_NO_RANDOMIZE) < 0)
		return;
	if (personality(0xffffffff) & ADDR_NO_RANDOMIZE)
		syscall(SYS_execve, "/proc/self/exe", argv, environment); /* if that fails, it goes on as it is */
}
