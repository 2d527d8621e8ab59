/* Memory regions: what fabricd is told of a range that is shared with it (share.c) */
#include "railbed.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "share.h"
#include "wire.h"

#undef ibv_rereg_mr
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

/* May peers write there? */
static bool open_to_peers(unsigned access)
{
	return access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
}

static void say_open(const void *addr, size_t length, bool open)
{
	uint64_t at = (uint64_t)(uintptr_t)addr;

	session_region(at & ~(PAGE - 1), (at + length + PAGE - 1) & ~(PAGE - 1), open);
}

/* Share a range and register it: its key, or 0 with errno */
static uint32_t enroll(const struct ibv_pd *pd, const void *addr, size_t length, uint64_t iova, unsigned access)
{
	uint64_t at = (uint64_t)(uintptr_t)addr, end = (at + length + PAGE - 1) & ~(PAGE - 1);
	struct wire_register r = {.length = length, .address = iova, .place = at, .access = access & ACCESS};
	int wrong = wrong_with(pd, at, length, iova, access);
	uint32_t key = 0;

	session_lock();
	session_pause();
	if (!wrong)
		wrong = session_open() ? share_range(at & ~(PAGE - 1), end) : errno;
	if (!wrong) {
		r.cookie = ++cookies;
		r.domain = pd->handle;
		key = tell(&r);
		wrong = key ? 0 : session.lost ? EIO : ENOMEM;
	}
	if (!wrong && open_to_peers(access))
		say_open(addr, length, true);
	session_unlock();
	if (wrong)
		errno = wrong;
	return key;
}

/* What is known of a region here, behind what programs see of it */
struct region {
	struct ibv_mr mr;
	uint64_t iova;
	unsigned access;
};

static void discharge(const struct ibv_mr *mr)
{
	const struct wire_key k = {.key = mr->lkey};

	session_lock();
	session_begin();
	if (open_to_peers(((const struct region *)mr)->access))
		say_open(mr->addr, mr->length, false);
	if (session.fd >= 0)
		memcpy(session_command(DEREGISTER, sizeof k), &k, sizeof k);
	session_now();
	session_unlock();
}

static uint32_t regrant(const struct region *m, const struct ibv_pd *pd, unsigned access)
{
	const struct wire_rights r = {.key = m->mr.lkey, .access = access & ACCESS, .domain = pd->handle};
	int wrong = wrong_with(pd, (uint64_t)(uintptr_t)m->mr.addr, m->mr.length, m->iova, access);

	if (!wrong && session.fd < 0)
		wrong = EIO;
	errno = wrong;
	if (wrong)
		return 0;
	session_lock();
	session_begin();
	if (open_to_peers(access) != open_to_peers(m->access))
		say_open(m->mr.addr, m->mr.length, open_to_peers(access));
	memcpy(session_command(MODIFY_REGION, sizeof r), &r, sizeof r);
	session_now();
	session_unlock();
	return m->mr.lkey;
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned int access)
{
	struct region *m = calloc(1, sizeof *m);
	uint32_t key = m ? enroll(pd, addr, length, iova, access) : 0;

	if (!key) {
		free(m);
		return NULL;
	}
	m->mr = (struct ibv_mr){
		.context = pd->context, .pd = pd, .addr = addr, .length = length, .handle = key, .lkey = key, .rkey = key};
	m->iova = iova;
	m->access = access;
	pd_use(pd, 1);
	return &m->mr;
}

/* Of another domain or access it keeps its key; of another place it is registered anew before the old one goes */
int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t length, int access)
{
	struct region *m = (struct region *)mr;
	bool moves = flags & IBV_REREG_MR_CHANGE_TRANSLATION;

	if (!flags || flags & ~IBV_REREG_MR_FLAGS_SUPPORTED || (moves && (!addr || !length))) {
		errno = EINVAL;
		return IBV_REREG_MR_ERR_INPUT;
	}
	pd = flags & IBV_REREG_MR_CHANGE_PD ? pd : mr->pd;
	addr = moves ? addr : mr->addr;
	length = moves ? length : mr->length;
	unsigned rights = flags & IBV_REREG_MR_CHANGE_ACCESS ? (unsigned)access : m->access;
	uint64_t iova = moves ? (uint64_t)(uintptr_t)addr : m->iova;
	uint32_t key = moves ? enroll(pd, addr, length, iova, rights) : regrant(m, pd, rights);
	if (!key)
		return errno == EINVAL || errno == EOPNOTSUPP ? IBV_REREG_MR_ERR_INPUT : IBV_REREG_MR_ERR_CMD;
	if (moves)
		discharge(mr);
	pd_use(pd, 1);
	pd_use(mr->pd, -1);
	*m = (struct region){*mr, iova, rights};
	mr->pd = pd;
	mr->addr = addr;
	mr->length = length;
	mr->handle = mr->lkey = mr->rkey = key;
	return 0;
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
	discharge(m);
	pd_use(m->pd, -1);
	free(m);
	return 0;
}
