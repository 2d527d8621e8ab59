/* /proc/cpuinfo, whose frequency is that of the emulated time-stamp counter
 *
 * Programs divide counts by it: perftest takes what the processor runs at, UCX what its name ends with.  Those that find
 * another frequency there measure one, and round.
 */
#include "emulated.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define REAL(name)                                                                                                          \
	static __typeof__(&name) real;                                                                                      \
	if (!real)                                                                                                          \
	*(void **)&real = dlsym(RTLD_NEXT, #name)

/* A copy of @from with 1 GHz for every processor; @from itself if there can be none */
static FILE *with_our_frequency(FILE *from)
{
	char line[4096];
	int fd = from ? memfd_create("cpuinfo", MFD_CLOEXEC) : -1;
	FILE *to = fd < 0 ? NULL : fdopen(fd, "w+");

	if (!to)
		return from;
	while (fgets(line, sizeof line, from)) {
		const char *ours = strncmp(line, "cpu MHz", 7) ? line : "cpu MHz\t\t: 1000.000\n";
		fputs(strncmp(line, "model name", 10) ? ours : "model name\t: Railbed's emulated clock @ 1.00GHz\n", to);
	}
	fclose(from);
	rewind(to);
	return to;
}

FILE *fopen(const char *restrict path, const char *restrict mode)
{
	REAL(fopen);
	FILE *f = real(path, mode);
	return strcmp(path, "/proc/cpuinfo") ? f : with_our_frequency(f);
}

FILE *fopen64(const char *restrict path, const char *restrict mode)
{
	REAL(fopen64);
	FILE *f = real(path, mode);
	return strcmp(path, "/proc/cpuinfo") ? f : with_our_frequency(f);
}
