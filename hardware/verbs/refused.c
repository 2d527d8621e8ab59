/* What this NIC has not, refused as a NIC without it would: EOPNOTSUPP */
#include "railbed.h"

#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

#define REFUSE_PTR(type, name, ...)                                                                                         \
	type name(__VA_ARGS__)                                                                                              \
	{                                                                                                                   \
		errno = EOPNOTSUPP;                                                                                         \
		return NULL;                                                                                                \
	}
#define REFUSE_INT(name, ...)                                                                                               \
	int name(__VA_ARGS__)                                                                                               \
	{                                                                                                                   \
		return errno = EOPNOTSUPP;                                                                                  \
	}

#pragma GCC diagnostic ignored "-Wunused-parameter"

REFUSE_PTR(struct ibv_mr *, ibv_reg_dmabuf_mr, struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access)
REFUSE_INT(ibv_attach_mcast, struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
REFUSE_INT(ibv_detach_mcast, struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
REFUSE_INT(ibv_query_ece, struct ibv_qp *qp, struct ibv_ece *ece)
REFUSE_INT(ibv_set_ece, struct ibv_qp *qp, struct ibv_ece *ece)
REFUSE_INT(ibv_resolve_eth_l2_from_gid, struct ibv_context *c, struct ibv_ah_attr *a, uint8_t mac[6], uint16_t *vlan)
REFUSE_PTR(struct ibv_context *, ibv_import_device, int fd)
REFUSE_PTR(struct ibv_mr *, ibv_import_mr, struct ibv_pd *pd, uint32_t handle)
REFUSE_PTR(struct ibv_pd *, ibv_import_pd, struct ibv_context *c, uint32_t handle)
REFUSE_PTR(struct ibv_dm *, ibv_import_dm, struct ibv_context *c, uint32_t handle)

void ibv_unimport_mr(struct ibv_mr *mr)
{
}

void ibv_unimport_pd(struct ibv_pd *pd)
{
}

void ibv_unimport_dm(struct ibv_dm *dm)
{
}

/* --- what is so without doing anything --- */
int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op, uint32_t flags)
{
	return 0;
}

int ibv_fork_init(void)
{
	return 0;
}

enum ibv_fork_status ibv_is_fork_initialized(void)
{
	return IBV_FORK_UNNEEDED;
}

int ibv_dontfork_range(void *base, size_t size);
int ibv_dofork_range(void *base, size_t size);

int ibv_dontfork_range(void *base, size_t size)
{
	return 0;
}

int ibv_dofork_range(void *base, size_t size)
{
	return 0;
}
