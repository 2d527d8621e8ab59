/* Memory windows: keys of parts of regions, that a queue pair gives out and takes back
 *
 * The lowest 8 bits of a window's key change with each binding, so that a key of before is of no use: those of type 1 here,
 * those of type 2 as the program says.  What is bound to what fabricd knows (fabricd's worker/region.c).
 */
#include "railbed.h"

#include <errno.h>
#include <stdlib.h>

#include "wire.h"

struct window {
	struct ibv_mw mw;
	uint32_t key; /* but for what bindings change of it */
	unsigned forks;
};

struct ibv_mw *window_alloc(struct ibv_pd *pd, enum ibv_mw_type type)
{
	const struct wire_alloc_mw what = {.domain = pd->handle, .type = type};

	errno = EINVAL;
	struct window *w = type == IBV_MW_TYPE_1 || type == IBV_MW_TYPE_2 ? calloc(1, sizeof *w) : NULL;
	if (!w)
		return NULL;
	session_lock();
	uint32_t key = session_open() ? memory_key(ALLOC_MW, &what, sizeof what, -1) : 0;
	session_unlock();
	if (!key) {
		free(w);
		return NULL;
	}
	*w = (struct window){
		.mw = {.context = pd->context, .pd = pd, .rkey = key, .handle = key, .type = type}, .key = key, .forks = session.forks};
	pd_use(pd, 1);
	return &w->mw;
}

int window_dealloc(struct ibv_mw *mw)
{
	session_lock();
	memory_forget(((struct window *)mw)->key, ((struct window *)mw)->forks);
	session_now();
	session_unlock();
	pd_use(mw->pd, -1);
	free(mw);
	return 0;
}

/* Of type 1: by a request of its own */
int window_bind(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *b)
{
	struct ibv_send_wr *bad, wr = {.wr_id = b->wr_id, .opcode = IBV_WR_BIND_MW, .send_flags = (int)b->send_flags & ~IBV_SEND_INLINE};

	if (b->bind_info.length && (!b->bind_info.mr || b->bind_info.mr->pd != mw->pd || qp->pd != mw->pd))
		return EPERM;
	wr.bind_mw.mw = mw;
	wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
	wr.bind_mw.bind_info = b->bind_info;
	int wrong = post_send(qp, &wr, &bad);
	if (!wrong)
		mw->rkey = wr.bind_mw.rkey;
	return wrong;
}
