/* A program with a NIC, two of its queue pairs, and what they should say (hostile_verbs.c) */
#define _GNU_SOURCE
#include <errno.h>
#include <infiniband/verbs.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROOM 8
#define DEEP 16384

static struct ibv_context *c;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_cq *peers;
static struct ibv_qp *qp, *peer;
static struct ibv_mr *mr;
static char *memory;
static const char *name;

static int *looked; /* shared with children */

static void said(const char *what, int got, int expected)
{
	++*looked;
	if (got != expected)
		printf("%s: %s: %d (%s), not %d\n", name, what, got, got < 0 ? "-1" : strerror(got), expected);
	fflush(stdout);
}

static void made(const char *what, const void *p, int expected)
{
	said(what, p ? 0 : errno, expected);
}

static struct ibv_qp_init_attr wanted(enum ibv_qp_type type)
{
	return (struct ibv_qp_init_attr){
		.send_cq = cq, .recv_cq = cq, .qp_type = type, .cap = {.max_send_wr = ROOM, .max_recv_wr = ROOM, .max_send_sge = 2, .max_recv_sge = 2, .max_inline_data = 64}};
}

/* All attributes to that state, to the peer; or the peer's to it */
static struct ibv_qp_attr all(enum ibv_qp_state state)
{
	struct ibv_qp_attr a = {.qp_state = state, .path_mtu = IBV_MTU_1024, .port_num = 1, .qp_access_flags = 15, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
				.max_rd_atomic = 1, .max_dest_rd_atomic = 1, .ah_attr = {.is_global = 1, .port_num = 1}};

	ibv_query_gid(c, 1, 0, &a.ah_attr.grh.dgid);
	a.dest_qp_num = peer->qp_num;
	return a;
}

#define TO_INIT (IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)
#define TO_RTR (IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)
#define TO_RTS (IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC)

static int to(enum ibv_qp_state state, int mask)
{
	struct ibv_qp_attr a = all(state);

	return ibv_modify_qp(qp, &a, mask);
}

static int receives(void)
{
	struct ibv_qp_attr a = all(IBV_QPS_INIT);

	a.dest_qp_num = qp->qp_num;
	ibv_modify_qp(peer, &(struct ibv_qp_attr){.qp_state = IBV_QPS_RESET}, IBV_QP_STATE);
	ibv_modify_qp(peer, &a, TO_INIT);
	a.qp_state = IBV_QPS_RTR;
	return ibv_modify_qp(peer, &a, TO_RTR);
}

static int ready(void)
{
	int wrong = receives();

	wrong = wrong ? wrong : to(IBV_QPS_INIT, TO_INIT);
	wrong = wrong ? wrong : to(IBV_QPS_RTR, TO_RTR);
	return wrong ? wrong : to(IBV_QPS_RTS, TO_RTS);
}

static void begin(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_qp_init_attr init;

	c = ibv_open_device(list[0]);
	pd = ibv_alloc_pd(c);
	cq = ibv_create_cq(c, 64, NULL, NULL, 0);
	peers = ibv_create_cq(c, 64, NULL, NULL, 0);
	init = wanted(IBV_QPT_RC);
	qp = ibv_create_qp(pd, &init);
	init.send_cq = init.recv_cq = peers;
	peer = ibv_create_qp(pd, &init);
	memory = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	mr = ibv_reg_mr(pd, memory, 8192, 15);
	if (!qp || !peer || !mr)
		exit(9);
}

static struct ibv_sge sge;
static struct ibv_send_wr write_wr(void)
{
	struct ibv_send_wr wr = {.wr_id = 7, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED};

	sge = (struct ibv_sge){(uint64_t)memory, 64, mr->lkey};
	wr.wr.rdma.remote_addr = (uint64_t)memory + 4096;
	wr.wr.rdma.rkey = mr->rkey;
	return wr;
}

static int post(struct ibv_send_wr wr)
{
	struct ibv_send_wr *bad = NULL;
	int wrong = ibv_post_send(qp, &wr, &bad);

	if (wrong)
		said("the request that is wrong", bad == &wr, 1);
	return wrong;
}

static void completion(const char *what, enum ibv_wc_status expected)
{
	struct ibv_wc wc;
	int got;

	while (!(got = ibv_poll_cq(cq, 1, &wc)))
		;
	said(what, got < 0 ? got : (int)wc.status, (int)expected);
}

/* A write with something changed: refused with an error, or ended with a status.  The former are above */
static void write_wrong(const char *what, void (*change)(struct ibv_send_wr *), int expected)
{
	struct ibv_send_wr wr;
	int wrong;

	to(IBV_QPS_RESET, IBV_QP_STATE);
	said("ready", ready(), 0);
	wr = write_wr();
	change(&wr);
	wrong = post(wr);
	if (wrong || expected > IBV_WC_TM_RNDV_INCOMPLETE)
		said(what, wrong, expected);
	else
		completion(what, (enum ibv_wc_status)expected);
}

/* The NIC works as ever: a new queue pair writes */
static void end(void)
{
	struct ibv_qp_init_attr init = wanted(IBV_QPT_RC);
	struct ibv_wc wc;
	int got;

	qp = ibv_create_qp(pd, &init);
	memory[0] = (char)(memory[4096] + 1);
	if (!qp || ready() || post(write_wr())) {
		said("afterwards", errno, 0);
		exit(1);
	}
	while (!(got = ibv_poll_cq(cq, 1, &wc)) || (got == 1 && wc.qp_num != qp->qp_num))
		;
	said("afterwards: its write", got < 0 ? got : (int)wc.status, 0);
	said("afterwards: what it wrote", memory[4096], memory[0]);
}
