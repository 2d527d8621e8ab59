/* Memory regions: what fabricd is told of a range that is shared with it (share.c) */
#include "railbed.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "share.h"
#include "wire.h"

#undef ibv_reg_mr
#undef ibv_reg_mr_iova

#define PAGE 4096ull
#define ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)
#define HARMLESS (IBV_ACCESS_RELAXED_ORDERING | IBV_ACCESS_HUGETLB)

static uint32_t cookies;

static uint32_t tell(const struct wire_register *r)
{
	struct wire_region answer;

	session_begin();
	if (session.fd < 0)
		return 0;
	memcpy(session_command(REGISTER, sizeof *r), r, sizeof *r);
	if (!session_exchange(share_file(), REPLY_REGION))
		return 0;
	memcpy(&answer, session.in + 8, sizeof answer);
	return answer.key;
}

static int wrong_with(const struct ibv_pd *pd, uint64_t at, size_t length, uint64_t iova, unsigned access)
{
	if (!pd || !length || at + length < at || iova + length < iova)
		return EINVAL;
	if (access & ~(unsigned)(ACCESS | HARMLESS))
		return EOPNOTSUPP;
	/* as the specification has it: what others may write, its owner may */
	if (access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC) && !(access & IBV_ACCESS_LOCAL_WRITE))
		return EINVAL;
	return (at ^ iova) & (PAGE - 1) ? EINVAL : 0;
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned int access)
{
	uint64_t at = (uint64_t)(uintptr_t)addr, end = (at + length + PAGE - 1) & ~(PAGE - 1);
	struct wire_register r = {.length = length, .address = iova, .place = at, .access = access & ACCESS};
	int wrong = wrong_with(pd, at, length, iova, access);
	struct ibv_mr *m = wrong ? NULL : calloc(1, sizeof *m);
	uint32_t key = 0;

	if (!m) {
		errno = wrong ? wrong : ENOMEM;
		return NULL;
	}
	session_lock();
	session_pause();
	wrong = session_open() ? share_range(at & ~(PAGE - 1), end) : errno;
	if (!wrong) {
		r.cookie = ++cookies;
		r.domain = pd->handle;
		key = tell(&r);
		wrong = key ? 0 : session.lost ? EIO : ENOMEM;
	}
	if (!wrong && access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC))
		session_region(at & ~(PAGE - 1), end, true);
	session_unlock();
	if (wrong) {
		free(m);
		errno = wrong;
		return NULL;
	}
	*m = (struct ibv_mr){
		.context = pd->context, .pd = pd, .addr = addr, .length = length, .handle = key, .lkey = key, .rkey = key};
	pd_use(pd, 1);
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
	const struct wire_key k = {.key = m->lkey};

	session_lock();
	session_begin();
	session_region((uint64_t)(uintptr_t)m->addr & ~(PAGE - 1), ((uint64_t)(uintptr_t)m->addr + m->length + PAGE - 1) & ~(PAGE - 1), false);
	if (session.fd >= 0)
		memcpy(session_command(DEREGISTER, sizeof k), &k, sizeof k);
	session_now();
	session_unlock();
	pd_use(m->pd, -1);
	free(m);
	return 0;
}
