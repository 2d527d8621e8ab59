/* Protection domains: numbers that regions and queue pairs name.  Parent and thread domains
 *
 * A parent domain is another handle of its protection domain, with hints of who uses what is made in it: there is one
 * lock for all here, so nothing follows from a thread domain, and memory of queues is taken from the heap whatever its
 * allocators are (which may decline, too: IBV_ALLOCATOR_USE_DEFAULT).
 */
#include "railbed.h"

#include <errno.h>
#include <stdlib.h>

struct pd {
	struct ibv_pd pd;
	int users;
	struct ibv_pd *of; /* of a parent domain; or NULL */
	struct ibv_td *td;
};

struct td {
	struct ibv_td td;
	int users;
};

struct ibv_pd *ibv_alloc_pd(struct ibv_context *c)
{
	static uint32_t numbers;
	struct pd *p = calloc(1, sizeof *p);

	if (!p)
		return NULL;
	session_lock();
	p->pd = (struct ibv_pd){.context = c, .handle = ++numbers};
	session_unlock();
	return &p->pd;
}

/* pd_use() - One more, or one less, is in the domain */
void pd_use(struct ibv_pd *pd, int more)
{
	__atomic_add_fetch(&((struct pd *)pd)->users, more, __ATOMIC_RELAXED);
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
	if (__atomic_load_n(&((struct pd *)pd)->users, __ATOMIC_RELAXED))
		return EBUSY;
	struct pd *p = (struct pd *)pd;
	if (p->of)
		pd_use(p->of, -1);
	if (p->td)
		__atomic_add_fetch(&((struct td *)p->td)->users, -1, __ATOMIC_RELAXED);
	free(pd);
	return 0;
}

struct ibv_pd *pd_parent(struct ibv_context *c, struct ibv_parent_domain_init_attr *a)
{
	struct pd *p = NULL;

	errno = EINVAL;
	if (a->pd && !(a->comp_mask & ~(uint32_t)(IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT)))
		p = calloc(1, sizeof *p);
	if (!p)
		return NULL;
	*p = (struct pd){.pd = {.context = c, .handle = a->pd->handle}, .of = a->pd, .td = a->td};
	pd_use(a->pd, 1);
	if (a->td)
		__atomic_add_fetch(&((struct td *)a->td)->users, 1, __ATOMIC_RELAXED);
	return &p->pd;
}

struct ibv_td *td_alloc(struct ibv_context *c, struct ibv_td_init_attr *a)
{
	struct td *t = a->comp_mask ? NULL : calloc(1, sizeof *t);

	if (!t)
		errno = a->comp_mask ? EINVAL : ENOMEM;
	else
		t->td.context = c;
	return t ? &t->td : NULL;
}

int td_dealloc(struct ibv_td *td)
{
	if (__atomic_load_n(&((struct td *)td)->users, __ATOMIC_RELAXED))
		return EBUSY;
	free(td);
	return 0;
}
