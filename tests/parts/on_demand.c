/* A region on demand of a program that unmaps and maps anew: what a write to itself brings, line by line
 *
 * Built by tests/fabricd/test_verbs_on_demand.py, with the distribution's header.
 */
#define _GNU_SOURCE
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE 4096ul

static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static char *from, *to;

static void connect_to_itself(struct ibv_context *c)
{
	struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = {.max_send_wr = 4, .max_send_sge = 1}};
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};

	qp = ibv_create_qp(pd, &init);
	ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	a.qp_state = IBV_QPS_RTR;
	a.path_mtu = IBV_MTU_4096;
	a.dest_qp_num = qp->qp_num;
	a.ah_attr.is_global = a.ah_attr.port_num = 1;
	ibv_query_gid(c, 1, 0, &a.ah_attr.grh.dgid);
	ibv_modify_qp(qp, &a,
		      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
			      IBV_QP_MIN_RNR_TIMER);
	a.qp_state = IBV_QPS_RTS;
	ibv_modify_qp(qp, &a,
		      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

static void map(char *at, const char *text)
{
	if (mmap(at, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
		exit(3);
	strcpy(at, text);
}

static void write_there(const char *what, const struct ibv_mr *mr, uint32_t rkey)
{
	struct ibv_sge sge = {(uint64_t)from, 64, mr->lkey};
	struct ibv_send_wr *bad, wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED};
	struct ibv_wc wc;

	wr.wr.rdma.remote_addr = (uint64_t)to;
	wr.wr.rdma.rkey = rkey;
	if (ibv_post_send(qp, &wr, &bad))
		exit(4);
	while (!ibv_poll_cq(cq, 1, &wc))
		;
	printf("%s: %s%s%s\n", what, ibv_wc_status_str(wc.status), wc.status ? "" : ": ", wc.status ? "" : to);
}

int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *c = ibv_open_device(list[0]);
	int access = IBV_ACCESS_ON_DEMAND | IBV_ACCESS_LOCAL_WRITE;

	pd = ibv_alloc_pd(c);
	cq = ibv_create_cq(c, 4, NULL, NULL, 0);
	from = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	to = from + 2 * PAGE;
	munmap(from + PAGE, PAGE); /* a hole from the beginning */
	struct ibv_mr *mr = ibv_reg_mr(pd, from, 4 * PAGE, access | IBV_ACCESS_REMOTE_WRITE);
	struct ibv_mr *all = ibv_reg_mr(pd, NULL, SIZE_MAX, access);
	connect_to_itself(c);
	strcpy(from, "first");
	write_there("mapped", mr, mr->rkey);
	munmap(from, PAGE);
	map(from, "second");
	write_there("mapped anew", mr, mr->rkey);
	munmap(to, PAGE);
	map(to, "");
	write_there("the other end, too", mr, mr->rkey);
	map(from, "third");
	write_there("all of memory", all, mr->rkey);
	struct ibv_sge hole = {(uint64_t)from, PAGE + 1, mr->lkey};
	printf("advice: %d, without faults %d\n",
	       ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, IBV_ADVISE_MR_FLAG_FLUSH, &hole, 1),
	       ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT, IBV_ADVISE_MR_FLAG_FLUSH, &hole, 1));
	munmap(from, PAGE);
	write_there("unmapped", mr, mr->rkey);
	return 0;
}
