/* Buffers of Open vSwitch, kept from one look at its ports to the next: loaded into ovs-vswitchd before the C library.
 *
 * Theory of Operation
 *
 * For each port that it looks at, ovs-vswitchd allocates a batch of 32 packets, most of which it frees at once, as none
 * has come.  With thousands of ports that is nearly half of its processor time: the C library joins such blocks with
 * their neighbours, and takes them apart again.  So blocks of about a packet's size stay with the thread that frees
 * them, up to a few MiB, and are handed out again as they are.  They are the C library's blocks all the time: what
 * else it does with blocks needs to know nothing of it.
 */
#include <malloc.h>
#include <stddef.h>

#define STEP 64
#define LEAST 512 /* below that the C library does likewise */
#define MOST 16384
#define KEPT_BYTES (4u << 20) /* by a thread */

struct block {
	struct block *next;
};

void *__libc_malloc(size_t bytes);
void __libc_free(void *at);

static _Thread_local struct block *kept[MOST / STEP + 1] __attribute__((tls_model("initial-exec")));
static _Thread_local size_t kept_bytes __attribute__((tls_model("initial-exec")));

/* malloc() - A block that was kept, if there is one of that size */
void *malloc(size_t bytes)
{
	if (bytes <= LEAST || bytes > MOST)
		return __libc_malloc(bytes);
	size_t steps = (bytes + STEP - 1) / STEP;
	struct block *one = kept[steps];
	if (!one)
		return __libc_malloc(steps * STEP);
	kept[steps] = one->next;
	kept_bytes -= steps * STEP;
	return one;
}

/* free() - Keep a block of about a packet's size */
void free(void *at)
{
	size_t steps = at ? malloc_usable_size(at) / STEP : 0;

	if (steps * STEP <= LEAST || steps * STEP > MOST || kept_bytes + steps * STEP > KEPT_BYTES) {
		__libc_free(at);
		return;
	}
	struct block *one = at;
	one->next = kept[steps];
	kept[steps] = one;
	kept_bytes += steps * STEP;
}
