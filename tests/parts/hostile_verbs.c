/* libibverbs as a careless program calls it: each call beside what the manual has it say, or the specification
 *
 * Built by tests/fabricd/test_verbs_hostile.py, with the distribution's header.  Each case runs in a child with a session
 * of its own, so that one that ends there, as it would on any NIC, ends nothing else; afterwards it has to be able to use
 * its NIC as ever.  What is otherwise is a line; the last one counts what was looked at.
 */
#include "hostile_verbs.h"

static void nothing(void)
{
	made("open_device(NULL)", ibv_open_device(NULL), ENODEV);
	ibv_free_device_list(NULL);
	made("get_device_list", ibv_get_device_list(NULL), 0);
}

static void ports(void)
{
	struct ibv_port_attr a;
	union ibv_gid gid;
	uint16_t key;

	said("port 0", ibv_query_port(c, 0, &a), EINVAL);
	said("port 2", ibv_query_port(c, 2, &a), EINVAL);
	said("gid -1", ibv_query_gid(c, 1, -1, &gid) ? errno : 0, EINVAL);
	said("gid 99", ibv_query_gid(c, 1, 99, &gid) ? errno : 0, EINVAL);
	said("pkey 1", ibv_query_pkey(c, 1, 1, &key) ? errno : 0, EINVAL);
}

static void regions(void)
{
	char *hole = mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	munmap(hole + 4096, 4096);
	made("a hole", ibv_reg_mr(pd, hole, 3 * 4096, 1), EFAULT);
	made("nothing there", ibv_reg_mr(pd, (void *)4096, 100, 1), EFAULT);
	made("NULL", ibv_reg_mr(pd, NULL, 100, 1), EFAULT);
	made("no bytes", ibv_reg_mr(pd, memory, 0, 1), EINVAL);
	made("beyond the end", ibv_reg_mr(pd, memory, SIZE_MAX - 1, 1), EINVAL);
	made("what only others may write", ibv_reg_mr(pd, memory, 100, IBV_ACCESS_REMOTE_WRITE), EINVAL);
	made("an access that there is not", ibv_reg_mr(pd, memory, 100, 1 << 19), EOPNOTSUPP);
	made("an optional one", ibv_reg_mr(pd, memory, 100, 1 << 29), 0);
	said("its domain goes", ibv_dealloc_pd(pd), EBUSY);
}

static void queues(void)
{
	struct ibv_qp_init_attr a = wanted(IBV_QPT_RC);
	struct ibv_srq_init_attr s = {.attr = {.max_wr = 0}};

	made("completions: none", ibv_create_cq(c, 0, NULL, NULL, 0), EINVAL);
	made("-1", ibv_create_cq(c, -1, NULL, NULL, 0), EINVAL);
	made("2^31 - 1", ibv_create_cq(c, 0x7fffffff, NULL, NULL, 0), EINVAL);
	made("vector 9", ibv_create_cq(c, 1, NULL, NULL, 9), EINVAL);
	a.cap.max_send_wr = 1 << 30;
	made("sends: 2^30", ibv_create_qp(pd, &a), EINVAL);
	a = wanted(IBV_QPT_RC);
	a.cap.max_recv_sge = 1 << 30;
	made("pieces: 2^30", ibv_create_qp(pd, &a), EINVAL);
	a = wanted(IBV_QPT_RC);
	a.cap.max_inline_data = 1 << 30;
	made("inline: 2^30", ibv_create_qp(pd, &a), EINVAL);
	a = wanted((enum ibv_qp_type)77);
	made("type 77", ibv_create_qp(pd, &a), EOPNOTSUPP);
	a = wanted(IBV_QPT_RC);
	a.send_cq = NULL;
	made("no completions", ibv_create_qp(pd, &a), EINVAL);
	made("shared receives: none", ibv_create_srq(pd, &s), EINVAL);
	s.attr.max_wr = 1 << 30;
	made("shared receives: 2^30", ibv_create_srq(pd, &s), EINVAL);
	said("completions go", ibv_destroy_cq(cq), EBUSY);
	said("smaller than none", ibv_resize_cq(cq, -5), EINVAL);
}

static void states(void)
{
	static const enum ibv_qp_state wrong[] = {IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_SQD, IBV_QPS_SQE, 77};
	struct ibv_qp_attr a = all(IBV_QPS_INIT);

	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
		said("from RESET", to(wrong[i], TO_INIT | TO_RTR | TO_RTS), EINVAL);
	said("without its port", to(IBV_QPS_INIT, TO_INIT & ~IBV_QP_PORT), EINVAL);
	a.port_num = 2;
	said("port 2", ibv_modify_qp(qp, &a, TO_INIT), EINVAL);
	a.port_num = 1;
	a.pkey_index = 3;
	said("pkey 3", ibv_modify_qp(qp, &a, TO_INIT), EINVAL);
	said("INIT", to(IBV_QPS_INIT, TO_INIT), 0);
	a = all(IBV_QPS_RTR);
	a.path_mtu = 9;
	said("MTU 9", ibv_modify_qp(qp, &a, TO_RTR), EINVAL);
	a.path_mtu = 0;
	said("MTU 0", ibv_modify_qp(qp, &a, TO_RTR), EINVAL);
	a = all(IBV_QPS_RTR);
	memset(&a.ah_attr.grh.dgid, 0xee, 16);
	said("nobody's GID", ibv_modify_qp(qp, &a, TO_RTR), ENETUNREACH);
	a = all(IBV_QPS_RTR);
	a.ah_attr.grh.sgid_index = 7;
	said("GID 7", ibv_modify_qp(qp, &a, TO_RTR), EINVAL);
	a = all(IBV_QPS_RTR);
	a.max_dest_rd_atomic = 200;
	said("200 READs", ibv_modify_qp(qp, &a, TO_RTR), EINVAL);
	a.max_dest_rd_atomic = 1;
	a.min_rnr_timer = 32;
	said("RNR timer 32", ibv_modify_qp(qp, &a, TO_RTR), EINVAL);
	said("RTR", to(IBV_QPS_RTR, TO_RTR), 0);
	a = all(IBV_QPS_RTS);
	a.timeout = 32;
	said("timeout 32", ibv_modify_qp(qp, &a, TO_RTS), EINVAL);
	a.timeout = 1;
	a.retry_cnt = 8;
	said("8 retries", ibv_modify_qp(qp, &a, TO_RTS), EINVAL);
	a.retry_cnt = 1;
	a.rnr_retry = 8;
	said("8 RNR retries", ibv_modify_qp(qp, &a, TO_RTS), EINVAL);
	said("RTS", to(IBV_QPS_RTS, TO_RTS), 0);
	said("RTR again", to(IBV_QPS_RTR, TO_RTR), EINVAL);
	said("SQD", to(IBV_QPS_SQD, IBV_QP_STATE), 0);
	said("INIT from there", to(IBV_QPS_INIT, TO_INIT), EINVAL);
	said("SQE from there", to(IBV_QPS_SQE, IBV_QP_STATE), EINVAL);
	a.cur_qp_state = IBV_QPS_INIT;
	said("it is not INIT", ibv_modify_qp(qp, &a, IBV_QP_CUR_STATE), EINVAL);
	said("ERR", to(IBV_QPS_ERR, IBV_QP_STATE), 0);
	said("RTS from there", to(IBV_QPS_RTS, TO_RTS), EINVAL);
}

/* The event comes once, if it is asked for; what is posted meanwhile is kept */
static void drained(void)
{
	struct ibv_qp_attr a = all(IBV_QPS_SQD);
	struct ibv_qp_init_attr init;
	struct ibv_async_event event;
	struct ibv_wc wc;

	ready();
	a.en_sqd_async_notify = 1;
	said("posted before", post(write_wr()), 0);
	said("SQD", ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
	a.timeout = 3;
	said("changed too early", ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_TIMEOUT), EINVAL);
	said("its event", ibv_get_async_event(c, &event) ? -1 : (int)event.event_type, IBV_EVENT_SQ_DRAINED);
	ibv_ack_async_event(&event);
	completion("posted before", IBV_WC_SUCCESS);
	ibv_query_qp(qp, &a, IBV_QP_STATE, &init);
	said("its state", (int)a.qp_state, IBV_QPS_SQD);
	said("draining", a.sq_draining, 0);
	a.timeout = 3;
	said("changed", ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_TIMEOUT), 0);
	memset(&a.ah_attr.grh.dgid.raw[12], 0x0a, 4);
	said("another peer", ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_AV), EINVAL);
	said("posted meanwhile", post(write_wr()), 0);
	for (int i = 0; i < 3; i++)
		said("kept", ibv_poll_cq(cq, 1, &wc), 0);
	said("RTS", to(IBV_QPS_RTS, IBV_QP_STATE), 0);
	completion("posted meanwhile", IBV_WC_SUCCESS);
	said("SQD", to(IBV_QPS_SQD, IBV_QP_STATE), 0);
	do
		ibv_query_qp(qp, &a, IBV_QP_STATE, &init);
	while (a.sq_draining);
	said("ERR", to(IBV_QPS_ERR, IBV_QP_STATE), 0);
}

static void too_early(void)
{
	struct ibv_recv_wr r = {.num_sge = 0}, *bad;
	struct ibv_send_wr *none;

	said("send in RESET", post(write_wr()), EINVAL);
	said("receive in RESET", ibv_post_recv(qp, &r, &bad), EINVAL);
	to(IBV_QPS_INIT, TO_INIT);
	said("send in INIT", post(write_wr()), EINVAL);
	to(IBV_QPS_RTR, TO_RTR);
	said("send in RTR", post(write_wr()), EINVAL);
	said("no request", ibv_post_send(qp, NULL, &none), 0);
	for (int i = 0; i < ROOM; i++)
		ibv_post_recv(qp, &r, &bad);
	said("one receive more than there is room for", ibv_post_recv(qp, &r, &bad), ENOMEM);
	r.num_sge = 1000;
	said("1000 pieces", ibv_post_recv(qp, &r, &bad), EINVAL);
	to(IBV_QPS_ERR, IBV_QP_STATE);
	for (int i = 0; i < ROOM; i++)
		completion("ERR", IBV_WC_WR_FLUSH_ERR);
}

static void pieces_1000(struct ibv_send_wr *wr) { wr->num_sge = 1000; }
static void pieces_less(struct ibv_send_wr *wr) { wr->num_sge = -1; }
static void opcode_99(struct ibv_send_wr *wr) { wr->opcode = 99; }
static void longer_than_2g(struct ibv_send_wr *wr) { static struct ibv_sge two[2]; two[0] = two[1] = (struct ibv_sge){sge.addr, 0x7fffffff, sge.lkey}; wr->sg_list = two; wr->num_sge = 2; }
static void inline_read(struct ibv_send_wr *wr) { wr->opcode = IBV_WR_RDMA_READ; wr->send_flags |= IBV_SEND_INLINE; }
static void inline_long(struct ibv_send_wr *wr) { sge.length = 65; wr->send_flags |= IBV_SEND_INLINE; }
static void wrong_lkey(struct ibv_send_wr *wr) { (void)wr; sge.lkey ^= 0x100; }
static void outside(struct ibv_send_wr *wr) { (void)wr; sge.addr += 8192 - 63; }
static void wrong_rkey(struct ibv_send_wr *wr) { wr->wr.rdma.rkey ^= 0x100; }
static void beyond(struct ibv_send_wr *wr) { wr->wr.rdma.remote_addr = UINT64_MAX - 3; }
static void no_window(struct ibv_send_wr *wr) { wr->opcode = IBV_WR_BIND_MW; wr->bind_mw.mw = NULL; }
static void unknown_invalidate(struct ibv_send_wr *wr) { wr->opcode = IBV_WR_LOCAL_INV; wr->invalidate_rkey = 12345; }
static void odd_atomic(struct ibv_send_wr *wr) { wr->opcode = IBV_WR_ATOMIC_FETCH_AND_ADD; sge.length = 8; wr->wr.atomic.remote_addr = sge.addr + 3; wr->wr.atomic.rkey = mr->rkey; }
static void short_atomic(struct ibv_send_wr *wr) { wr->opcode = IBV_WR_ATOMIC_FETCH_AND_ADD; sge.length = 4; wr->wr.atomic.remote_addr = sge.addr; wr->wr.atomic.rkey = mr->rkey; }

static void requests(void)
{
	write_wrong("1000 pieces", pieces_1000, EINVAL);
	write_wrong("-1 pieces", pieces_less, EINVAL);
	write_wrong("opcode 99", opcode_99, EOPNOTSUPP);
	write_wrong("longer than 2 GiB", longer_than_2g, EINVAL);
	write_wrong("a READ inline", inline_read, EINVAL);
	write_wrong("too long inline", inline_long, EINVAL);
	write_wrong("wrong lkey", wrong_lkey, IBV_WC_LOC_PROT_ERR);
	write_wrong("outside its region", outside, IBV_WC_LOC_PROT_ERR);
	write_wrong("wrong rkey", wrong_rkey, IBV_WC_REM_ACCESS_ERR);
	write_wrong("beyond the address space", beyond, IBV_WC_REM_ACCESS_ERR);
	write_wrong("no window", no_window, EINVAL);
	write_wrong("no key of a window", unknown_invalidate, IBV_WC_MW_BIND_ERR);
	write_wrong("an atomic at an odd address", odd_atomic, IBV_WC_REM_INV_REQ_ERR);
	write_wrong("an atomic of 4 bytes", short_atomic, IBV_WC_LOC_LEN_ERR);
}

static void full(void)
{
	struct ibv_send_wr list[ROOM + 2], *bad = NULL;

	ready();
	for (int i = 0; i < ROOM + 2; i++) {
		list[i] = write_wr();
		list[i].next = i < ROOM + 1 ? &list[i + 1] : NULL;
	}
	said("a list longer than the queue", ibv_post_send(qp, list, &bad), ENOMEM);
	said("the first that is not posted", (int)(bad - list), ROOM);
	for (int i = 0; i < ROOM; i++)
		completion("posted", IBV_WC_SUCCESS);
}

/* More posts, and more completions at a time, than a session of fabricd's takes */
static void deep(void)
{
	struct ibv_qp *many[6];
	struct ibv_recv_wr r = {.num_sge = 0}, *bad;
	struct ibv_cq *large = ibv_create_cq(c, 6 * DEEP, NULL, NULL, 0);
	struct ibv_wc wc[64];
	int came = 0, got = 0, wrong = 0;

	for (int i = 0; i < 6; i++) {
		struct ibv_qp_init_attr init = wanted(IBV_QPT_RC);
		init.recv_cq = large;
		init.cap.max_recv_wr = DEEP;
		many[i] = qp = ibv_create_qp(pd, &init);
		to(IBV_QPS_INIT, TO_INIT);
		for (int k = 0; k < DEEP && !wrong; k++)
			wrong = ibv_post_recv(qp, &r, &bad);
	}
	said("98304 receives", wrong, 0);
	for (int i = 0; i < 6; i++) {
		qp = many[i];
		to(IBV_QPS_ERR, IBV_QP_STATE);
	}
	while (came < 6 * DEEP && (got = ibv_poll_cq(large, 64, wc)) >= 0)
		came += got;
	said("flushed", came, 6 * DEEP);
}

static void datagrams(void)
{
	struct ibv_qp_init_attr init = wanted(IBV_QPT_UD);
	struct ibv_ah_attr a = {.port_num = 1};
	struct ibv_wc wc = {0};
	struct ibv_grh grh = {0};
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND};

	made("no GID", ibv_create_ah(pd, &a), EINVAL);
	a.is_global = 1;
	memset(&a.grh.dgid, 0xee, 16);
	made("nobody's GID", ibv_create_ah(pd, &a), EHOSTUNREACH);
	ibv_query_gid(c, 1, 0, &a.grh.dgid);
	a.port_num = 5;
	made("port 5", ibv_create_ah(pd, &a), EINVAL);
	said("of no datagram", ibv_init_ah_from_wc(c, 1, &wc, &grh, &a) ? errno : 0, EINVAL);
	wc.wc_flags = IBV_WC_GRH;
	said("of no header", ibv_init_ah_from_wc(c, 1, &wc, &grh, &a) ? errno : 0, EPROTONOSUPPORT);
	qp = ibv_create_qp(pd, &init);
	struct ibv_qp_attr q = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 5};
	said("INIT", ibv_modify_qp(qp, &q, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY), 0);
	q.qp_state = IBV_QPS_RTR;
	said("RTR", ibv_modify_qp(qp, &q, IBV_QP_STATE), 0);
	q.qp_state = IBV_QPS_RTS;
	said("RTS", ibv_modify_qp(qp, &q, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
	said("no address handle", post(wr), EINVAL);
	wr.opcode = IBV_WR_RDMA_WRITE;
	said("a write", post(wr), EINVAL);
}

static void windows(void)
{
	struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
	struct ibv_mw_bind b = {.bind_info = {.mr = NULL, .length = 10}};

	made("type 9", ibv_alloc_mw(pd, 9), EINVAL);
	said("of no region", ibv_bind_mw(qp, mw, &b), EINVAL);
	b.bind_info.mr = mr;
	said("before RTS", ibv_bind_mw(qp, mw, &b), EINVAL);
	ready();
	b.bind_info.addr = 5;
	b.send_flags = IBV_SEND_SIGNALED;
	said("outside its region", ibv_bind_mw(qp, mw, &b), 0);
	completion("outside its region", IBV_WC_MW_BIND_ERR);
}

static void device_memory(void)
{
	struct ibv_alloc_dm_attr a = {.length = 0};
	char at[8] = {0};

	made("none", ibv_alloc_dm(c, &a), EINVAL);
	a.length = 1 << 30;
	made("1 GiB", ibv_alloc_dm(c, &a), ENOMEM);
	a.length = 4096;
	a.log_align_req = 63;
	made("aligned by 2^63", ibv_alloc_dm(c, &a), EINVAL);
	a.log_align_req = 0;
	struct ibv_dm *dm = ibv_alloc_dm(c, &a);
	made("4 KiB", dm, 0);
	said("written beyond", ibv_memcpy_to_dm(dm, 4096, at, 8), EFAULT);
	said("written at 2^64 - 4", ibv_memcpy_to_dm(dm, UINT64_MAX - 3, at, 8), EFAULT);
	said("read beyond", ibv_memcpy_from_dm(at, dm, 4092, 8), EFAULT);
	made("a region beyond", ibv_reg_dm_mr(pd, dm, 4000, 100, IBV_ACCESS_ZERO_BASED), EINVAL);
	made("not zero based", ibv_reg_dm_mr(pd, dm, 0, 100, 1), EINVAL);
	made("a region", ibv_reg_dm_mr(pd, dm, 0, 100, IBV_ACCESS_ZERO_BASED | 1), 0);
	said("it goes before its region", ibv_free_dm(dm), EBUSY);
}

/* What a program has written into the structures that it was given */
static void scribbled(void)
{
	struct ibv_srq_init_attr s = {.attr = {.max_wr = 4}};
	struct ibv_srq *srq = ibv_create_srq(pd, &s);
	struct ibv_qp_init_attr init = wanted(IBV_QPT_RC);
	struct ibv_mr *other = ibv_reg_mr(pd, memory, 100, 1);

	srq->handle = 4711;
	init.srq = srq;
	struct ibv_qp *shares = ibv_create_qp(pd, &init);
	made("a shared queue's handle", shares, 0);
	said("that goes", ibv_destroy_srq(srq), EBUSY);
	said("its queue pair goes", shares ? ibv_destroy_qp(shares) : -1, 0);
	other->lkey = other->rkey = other->handle = 4711;
	said("a region's keys", ibv_dereg_mr(other), 0);
	qp->qp_num = qp->handle = 4711;
	said("a queue pair's number: INIT", to(IBV_QPS_INIT, TO_INIT), 0);
	said("it goes", ibv_destroy_qp(qp), 0);
}

/* A child has not its parent's NIC: what was made before the fork is of no use there, and does no harm */
static void forked(void)
{
	struct ibv_wc wc;
	int state;

	ready();
	pid_t child = fork();
	if (child) { /* and goes on meanwhile, or its NIC's clock would stand still */
		while (waitpid(child, &state, WNOHANG) != child)
			ibv_poll_cq(cq, 1, &wc);
		said("the child", state, 0);
		return;
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	said("post in the child", post(write_wr()), EIO);
	said("poll", ibv_poll_cq(cq, 1, &wc), -1);
	said("modify", to(IBV_QPS_ERR, IBV_QP_STATE), EIO);
	made("a region of its own", ibv_reg_mr(pd, memory, 100, 1), 0);
	said("the parent's region", ibv_dereg_mr(mr), 0);
	said("its queue pair", ibv_destroy_qp(qp), 0);
	begin();
	end();
	exit(0);
}

/* Memory goes while it is registered, as a library below may free it: what is done there ends, and nothing else */
static void unmapped(void)
{
	ready();
	munmap(memory, 8192);
	post(write_wr());
	completion("from memory that is unmapped", IBV_WC_SUCCESS);
	memory = mmap(memory, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	said("its region goes", ibv_dereg_mr(mr), 0);
	mr = ibv_reg_mr(pd, memory, 8192, 15);
	made("registered anew", mr, 0);
}

/* As a daemon does: no session any more.  All calls fail, none ends the program */
static void closed(void)
{
	ready();
	close_range(3, 10000, 0);
	post(write_wr());
	completion("a write", IBV_WC_WR_FLUSH_ERR);
	said("a post", post(write_wr()), EIO);
	made("a region", ibv_reg_mr(pd, memory, 100, 1), EIO);
	said("a state", to(IBV_QPS_ERR, IBV_QP_STATE), EIO);
	said("a region goes", ibv_dereg_mr(mr), 0);
	said("a queue pair goes", ibv_destroy_qp(qp), 0);
	exit(0);
}

static void gigabyte(void)
{
	size_t n = 1 << 30;
	char *large = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	large[n - 1] = 'x';
	struct ibv_mr *its = ibv_reg_mr(pd, large, n, 15);
	made("1 GiB", its, 0);
	ready();
	struct ibv_send_wr wr = write_wr();
	sge = (struct ibv_sge){(uint64_t)large + n - 1, 1, its->lkey};
	post(wr);
	completion("its last byte", IBV_WC_SUCCESS);
	said("it is", memory[4096], 'x');
	said("it goes", ibv_dereg_mr(its), 0);
}

static void null_request(void)
{
	struct ibv_send_wr wr;

	ready();
	wr = write_wr();
	wr.sg_list = NULL;
	post(wr);
}

static void null_region(void)
{
	ibv_dereg_mr(NULL);
}

static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {{"nothing", nothing},	 {"ports", ports},	 {"regions", regions},	       {"queues", queues},     {"states", states},
	     {"drained", drained}, {"too early", too_early},	 {"requests", requests}, {"full", full},	       {"deep", deep},	       {"datagrams", datagrams},
	     {"windows", windows},	 {"device memory", device_memory}, {"scribbled", scribbled}, {"forked", forked}, {"unmapped", unmapped},
	     {"closed", closed},	 {"gigabyte", gigabyte}, {"no list", null_request},    {"no region", null_region}};

int main(int argc, char **argv)
{
	looked = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		int state;
		name = cases[i].name;
		if (argc > 1 && strcmp(argv[1], name))
			continue;
		fflush(stdout);
		if (!fork()) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			begin();
			cases[i].run();
			end();
			exit(0);
		}
		wait(&state);
		if (WIFSIGNALED(state))
			printf("%s: %s\n", name, strsignal(WTERMSIG(state)));
		else if (WEXITSTATUS(state))
			printf("%s: exit %d\n", name, WEXITSTATUS(state));
	}
	printf("looked at %d\n", *looked);
	return 0;
}
