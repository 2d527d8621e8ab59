/* Memory regions: a program's own pages become pages that fabricd shares
 *
 * fabricd maps memfds; programs register what malloc, the stack or the linker gave them.  So the pages of a range that
 * are not shared yet are copied into a memfd, and then replaced in place by a shared mapping of it: what stands there
 * stays there.
 */
#include "railbed.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "wire.h"

#undef ibv_reg_mr
#undef ibv_reg_mr_iova

#define PAGE 4096ull
#define WINDOW 23 /* a region's file begins at a multiple of that: the rest of its address is in the key */
#define KEYS 256

struct shared {
	uint64_t start, end, base;
};
static struct shared shared[KEYS]; /* by fabricd's key */
static uint32_t cookies;

#define INLINE_BYTES (4ull << 20)
static uint8_t *inlined;
static uint32_t inlined_key;
static uint64_t inlined_at;

static uint32_t tell(int fd, uint64_t length)
{
	struct wire_register r = {.length = length, .cookie = ++cookies};
	struct wire_region answer;

	if (session.spend) /* it must come alone */
		session_command(PROGRESS, 0);
	session_flush();
	memcpy(session_command(REGISTER, sizeof r), &r, sizeof r);
	if (!session_exchange(fd, REPLY_REGION))
		return 0;
	memcpy(&answer, session.in + 8, sizeof answer);
	return answer.key;
}

static int file(uint64_t length)
{
	int fd = memfd_create("railbed", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd >= 0 && (ftruncate(fd, (off_t)length) || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK))) {
		close(fd);
		fd = -1;
	}
	return fd;
}

/* Put the pages of [start, end) into the file, and the file in their place; 0 or an error */
static int replace(int fd, uint64_t start, uint64_t end, uint64_t base)
{
	for (uint64_t at = start; at < end;) {
		ssize_t n = pwrite(fd, (void *)at, end - at, (off_t)(at - base));
		if (n <= 0)
			return EFAULT;
		at += (uint64_t)n;
	}
	void *got = mmap((void *)start, end - start, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, (off_t)(start - base));
	return got == MAP_FAILED ? errno : 0;
}

static uint32_t key_for(uint64_t start, uint64_t end)
{
	for (uint32_t k = 1; k < KEYS; k++)
		if (shared[k].start <= start && end <= shared[k].end)
			return k;
	for (uint32_t k = 1; k < KEYS; k++)
		if (shared[k].start < end && start < shared[k].end) {
			errno = EOPNOTSUPP;
			return 0;
		}
	uint64_t base = start >> WINDOW << WINDOW;
	int fd = file(end - base);
	errno = fd < 0 ? ENOMEM : replace(fd, start, end, base);
	uint32_t key = errno ? 0 : tell(fd, end - base);
	close(fd);
	if (key && key < KEYS)
		shared[key] = (struct shared){start, end, base};
	return key;
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned int access)
{
	uint64_t at = (uint64_t)(uintptr_t)addr, end = (at + length + PAGE - 1) & ~(PAGE - 1);
	struct ibv_mr *m = calloc(1, sizeof *m);

	(void)access;
	if (!m || !length || at + length < at || iova != at) {
		errno = !m ? ENOMEM : iova != at ? EOPNOTSUPP : EINVAL;
		free(m);
		return NULL;
	}
	session_lock();
	uint32_t key = session_open() ? key_for(at & ~(PAGE - 1), end) : 0;
	session_unlock();
	if (!key) {
		free(m);
		return NULL;
	}
	*m = (struct ibv_mr){.context = pd->context, .pd = pd, .addr = addr, .length = length, .handle = key};
	m->lkey = m->rkey = key | (uint32_t)(shared[key].base >> WINDOW << 8);
	return m;
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	return ibv_reg_mr_iova2(pd, addr, length, (uint64_t)(uintptr_t)addr, (unsigned)access);
}

struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, int access)
{
	return ibv_reg_mr_iova2(pd, addr, length, iova, (unsigned)access);
}

int ibv_dereg_mr(struct ibv_mr *m)
{
	free(m);
	return 0;
}

/* memory_find() - Where fabricd has that piece of memory */
bool memory_find(const struct ibv_sge *s, uint32_t *key, uint64_t *offset)
{
	uint32_t k = s->lkey & (KEYS - 1);

	if (s->addr < shared[k].start || s->addr + s->length > shared[k].end)
		return false;
	*key = k;
	*offset = s->addr - shared[k].base;
	return true;
}

/* memory_remote() - An address and a key of the peer's as fabricd wants them */
void memory_remote(uint32_t rkey, uint64_t address, uint32_t *key, uint64_t *offset)
{
	*key = rkey & (KEYS - 1);
	*offset = address - ((uint64_t)(rkey >> 8) << WINDOW);
}

/* memory_inline() - Keep data that the program may overwrite at once, and several pieces as one */
bool memory_inline(const void *const *parts, const size_t *lengths, int count, uint32_t *key, uint64_t *offset)
{
	size_t whole = 0;

	for (int i = 0; i < count; i++)
		whole += lengths[i];
	if (!inlined) {
		int fd = file(INLINE_BYTES);
		void *at = fd < 0 ? MAP_FAILED : mmap(NULL, INLINE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		if (at != MAP_FAILED && (inlined_key = tell(fd, INLINE_BYTES)))
			inlined = at;
		close(fd);
	}
	if (!inlined || whole > INLINE_BYTES)
		return false;
	if (inlined_at + whole > INLINE_BYTES)
		inlined_at = 0;
	*key = inlined_key;
	*offset = inlined_at;
	for (int i = 0; i < count; i++) {
		memcpy(inlined + inlined_at, parts[i], lengths[i]);
		inlined_at += lengths[i];
	}
	inlined_at = (inlined_at + 63) & ~63ull;
	return true;
}
