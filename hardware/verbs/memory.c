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
#define OF_PEERS (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)
#define ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)
#define ON_DEMAND IBV_ACCESS_ON_DEMAND
#define WINDOWS IBV_ACCESS_MW_BIND
#define HARMLESS (IBV_ACCESS_OPTIONAL_RANGE | IBV_ACCESS_HUGETLB)

static uint32_t cookies;

/* memory_key() - Say a command that is answered by a key, with a descriptor (or -1): that; or 0, with errno */
uint32_t memory_key(uint16_t op, const void *body, uint16_t bytes, int fd)
{
	struct wire_region answer = {0};

	session_begin();
	if (session.fd >= 0) {
		memcpy(session_command(op, bytes), body, bytes);
		if (session_exchange(fd, REPLY_REGION))
			memcpy(&answer, session.in + 8, sizeof answer);
	}
	if (!answer.key)
		errno = session.fd < 0 ? EIO : ENOMEM;
	return answer.key;
}

static int wrong_with(const struct ibv_pd *pd, uint64_t at, size_t length, uint64_t iova, unsigned access)
{
	if (!pd || !length || at + length < at || iova + length < iova)
		return EINVAL;
	if (access & ~(unsigned)(ACCESS | HARMLESS | ON_DEMAND | WINDOWS))
		return EOPNOTSUPP;
	if (demand_is_all(at, length) && (!(access & ON_DEMAND) || access & OF_PEERS))
		return access & ON_DEMAND ? EOPNOTSUPP : EFAULT; /* what peers name of all memory nobody would know in time */
	/* as the specification has it: what others may write, its owner may */
	if (access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC) && !(access & IBV_ACCESS_LOCAL_WRITE))
		return EINVAL;
	return (at ^ iova) & (PAGE - 1) ? EINVAL : 0;
}

/* May peers write there, perhaps by a window? */
static bool open_to_peers(unsigned access)
{
	return access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC | WINDOWS);
}

static void say_open(const void *addr, size_t length, bool open)
{
	uint64_t at = (uint64_t)(uintptr_t)addr;

	session_region(at & ~(PAGE - 1), (at + length + PAGE - 1) & ~(PAGE - 1), open);
}

/* What is registered for a region of all memory: a byte that nobody names */
static char of_all[PAGE] __attribute__((aligned(PAGE)));

/* memory_enroll() - Share a range and register it: its key, or 0 with errno */
uint32_t memory_enroll(const struct ibv_pd *pd, uint64_t at, size_t length, uint64_t iova, unsigned access)
{
	bool everything = demand_is_all(at, length), on_demand = access & ON_DEMAND;
	uint64_t place = everything ? (uint64_t)(uintptr_t)of_all : at, end = (at + length + PAGE - 1) & ~(PAGE - 1);
	struct wire_register r = {.length = everything ? 1 : length, .address = everything ? place : iova, .place = place,
				  .access = access & (ACCESS | ON_DEMAND | WINDOWS)};
	int wrong = wrong_with(pd, at, length, iova, access);
	uint32_t key = 0;

	session_lock();
	session_pause();
	if (!wrong && !session_open())
		wrong = errno;
	if (!wrong)
		wrong = on_demand ? share_file() < 0 ? ENOMEM : 0 : share_range(at & ~(PAGE - 1), end);
	if (!wrong) {
		r.cookie = ++cookies;
		r.domain = pd->handle;
		key = memory_key(REGISTER, &r, sizeof r, share_file());
		wrong = key ? 0 : errno;
	}
	if (!wrong && on_demand && (wrong = demand_added(pd, at, length, iova, key, access))) {
		demand_removed(key);
		memory_forget(key, session.forks);
		key = 0;
	}
	if (!wrong && open_to_peers(access))
		say_open((const void *)(uintptr_t)at, length, true);
	session_now();
	session_unlock();
	if (wrong)
		errno = wrong;
	return key;
}

/* What is known of a region here, behind what programs see of it */
struct region {
	struct ibv_mr mr;
	uint64_t iova;
	unsigned access, forks;
	uint32_t key; /* whatever its program makes of those in mr */
};

/* memory_forget() - fabricd is to forget what was given that key, in this process; under the session's lock */
void memory_forget(uint32_t key, unsigned forks)
{
	const struct wire_key k = {.key = key};

	session_begin();
	if (session.fd >= 0 && forks == session.forks)
		memcpy(session_command(DEREGISTER, sizeof k), &k, sizeof k);
}

static void discharge(const struct region *m)
{
	session_lock();
	if (open_to_peers(m->access) && m->forks == session.forks)
		say_open(m->mr.addr, m->mr.length, false);
	if (m->access & ON_DEMAND)
		demand_removed(m->key);
	memory_forget(m->key, m->forks);
	session_now();
	session_unlock();
}

static uint32_t regrant(const struct region *m, const struct ibv_pd *pd, unsigned access)
{
	const struct wire_rights r = {.key = m->key, .access = access & (ACCESS | WINDOWS), .domain = pd->handle};
	int wrong = wrong_with(pd, (uint64_t)(uintptr_t)m->mr.addr, m->mr.length, m->iova, access);

	if (!wrong && (session.fd < 0 || m->forks != session.forks))
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
	return m->key;
}

/* memory_region() - What a program sees of a region that fabricd knows by @key; NULL if that is 0, or there is no memory for it */
struct ibv_mr *memory_region(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned access, uint32_t key)
{
	struct region *m = key ? calloc(1, sizeof *m) : NULL;

	if (!m)
		return NULL;
	m->mr = (struct ibv_mr){
		.context = pd->context, .pd = pd, .addr = addr, .length = length, .handle = key, .lkey = key, .rkey = key};
	m->iova = iova;
	m->access = access;
	m->forks = session.forks;
	m->key = key;
	pd_use(pd, 1);
	return &m->mr;
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned int access)
{
	return memory_region(pd, addr, length, iova, access, memory_enroll(pd, (uint64_t)(uintptr_t)addr, length, iova, access));
}

/* Of another domain or access it keeps its key; of another place it is registered anew before the old one goes */
int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t length, int access)
{
	struct region *m = (struct region *)mr;
	bool moves = flags & IBV_REREG_MR_CHANGE_TRANSLATION, anew = moves || (m->access | (unsigned)access) & ON_DEMAND;

	if (!flags || flags & ~IBV_REREG_MR_FLAGS_SUPPORTED || (moves && (!addr || !length))) {
		errno = EINVAL;
		return IBV_REREG_MR_ERR_INPUT;
	}
	pd = flags & IBV_REREG_MR_CHANGE_PD ? pd : mr->pd;
	addr = moves ? addr : mr->addr;
	length = moves ? length : mr->length;
	unsigned rights = flags & IBV_REREG_MR_CHANGE_ACCESS ? (unsigned)access : m->access;
	uint64_t iova = moves ? (uint64_t)(uintptr_t)addr : m->iova;
	uint32_t key = anew ? memory_enroll(pd, (uint64_t)(uintptr_t)addr, length, iova, rights) : regrant(m, pd, rights);
	if (!key)
		return errno == EINVAL || errno == EOPNOTSUPP ? IBV_REREG_MR_ERR_INPUT : IBV_REREG_MR_ERR_CMD;
	if (anew)
		discharge(m);
	pd_use(pd, 1);
	pd_use(mr->pd, -1);
	*m = (struct region){*mr, iova, rights, session.forks, key};
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
	discharge((struct region *)m);
	dm_let_go(m);
	pd_use(m->pd, -1);
	free(m);
	return 0;
}
