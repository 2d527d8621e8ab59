/* The device: its list of one, what it can do, its port, its GID and partition key */
#include "railbed.h"

#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wire.h"

#undef ibv_get_device_list
#undef ibv_query_port

static struct ibv_device device = {
	.node_type = IBV_NODE_CA,
	.transport_type = IBV_TRANSPORT_IB,
	.name = "railbed0",
	.dev_name = "uverbs0",
	.dev_path = "/sys/class/infiniband_verbs/uverbs0",
	.ibdev_path = "/sys/class/infiniband/railbed0",
};

struct ibv_device **ibv_get_device_list(int *count)
{
	struct ibv_device **list = calloc(2, sizeof *list);

	if (list && place())
		list[0] = &device;
	if (count)
		*count = list && list[0];
	return list;
}

void ibv_free_device_list(struct ibv_device **list)
{
	free(list);
}

const char *ibv_get_device_name(struct ibv_device *d)
{
	return d ? d->name : NULL;
}

/* As a NIC makes it of its Ethernet address, 02:00 and the four bytes of its IPv4 address */
__be64 ibv_get_device_guid(struct ibv_device *d)
{
	uint64_t a = place() ? be32toh(place()->nics[place()->rank].address) : 0;

	(void)d;
	return htobe64(0x000000fffe000000ull | (a >> 24) << 40 | (a & 0xffffff));
}

int ibv_get_device_index(struct ibv_device *d)
{
	return d ? 0 : -1;
}

const char *ibv_get_sysfs_path(void)
{
	return "/sys";
}

int ibv_read_sysfs_file(const char *folder, const char *file, char *text, size_t room)
{
	static const struct {
		const char *name, *text;
	} files[] = {{"board_id", "RAILBED"}, {"hca_type", "railbed"}, {"fw_ver", "1.0"}, {"ibdev", "railbed0"}};

	(void)folder;
	for (size_t i = 0; i < sizeof files / sizeof *files; i++)
		if (!strcmp(file, files[i].name) && room > strlen(files[i].text))
			return sprintf(text, "%s", files[i].text);
	errno = ENOENT;
	return -1;
}

/* What a port of that rate says of itself: width times speed */
static void set_rate(struct ibv_port_attr *a, uint64_t bps)
{
	static const struct {
		unsigned gbps;
		uint8_t width, speed; /* as InfiniBand codes them: 2 is 4x, 1 is 1x; 32 is EDR, 64 HDR, 128 NDR */
	} rates[] = {{10, 1, 8},  {25, 1, 32},	{40, 2, 8},   {50, 1, 64},
		     {100, 2, 32}, {200, 2, 64}, {400, 2, 128}, {800, 4, 128}};
	size_t i = 0, n = sizeof rates / sizeof *rates;

	while (i + 1 < n && rates[i].gbps * 1000000000ull < bps)
		i++;
	a->active_width = rates[i].width;
	a->active_speed = rates[i].speed;
}

static enum ibv_mtu mtu_of(uint32_t bytes)
{
	enum ibv_mtu m = IBV_MTU_256;

	while (m < IBV_MTU_4096 && 256u << m <= bytes)
		m++;
	return m;
}

#define GIDS (1u + gids_moved) /* in the table */
static uint8_t gids_moved; /* as far as is known, */
static bool asked; /* once it has been asked */

/* How the port is now; without fabricd, down */
static struct wire_port ask(void)
{
	const struct wire_cookie q = {0};
	struct wire_port answer = {.rate_bps = place()->nics[place()->rank].rate_bps, .mtu = place()->mtu};

	session_lock();
	session_begin();
	if (session_open()) {
		memcpy(session_command(QUERY_PORT, sizeof q), &q, sizeof q);
		if (session_exchange(-1, REPLY_PORT))
			memcpy(&answer, session.in + 8, sizeof answer);
	}
	session_unlock();
	gids_moved = (answer.flags & PORT_GIDS_MOVED) != 0;
	asked = true;
	return answer;
}

/* railbed_gid_index() - Where the port's GID of RoCE v2 stands: first, unless that has moved behind the link-local one of v1 */
uint8_t railbed_gid_index(void)
{
	if (!asked)
		ask();
	return gids_moved;
}

static int query_port(struct ibv_context *c, uint8_t port, struct ibv_port_attr *to, size_t room)
{
	struct ibv_port_attr a = {
		.max_mtu = IBV_MTU_4096,
		.port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS,
		.max_msg_sz = 1u << 31,
		.pkey_tbl_len = 1,
		.max_vl_num = 1,
		.link_layer = IBV_LINK_LAYER_ETHERNET,
		.flags = IBV_QPF_GRH_REQUIRED,
	};

	(void)c;
	if (port != PORT)
		return EINVAL;
	const struct wire_port is = ask();
	bool up = is.flags & PORT_UP;
	a.state = up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
	a.phys_state = up ? 5 : 2; /* LinkUp, Polling */
	a.active_mtu = mtu_of(is.mtu);
	a.gid_tbl_len = GIDS;
	a.qkey_viol_cntr = is.qkey_violations;
	set_rate(&a, is.rate_bps);
	memset(to, 0, room);
	memcpy(to, &a, room < sizeof a ? room : sizeof a);
	return 0;
}

int ibv_query_port(struct ibv_context *c, uint8_t port, struct _compat_ibv_port_attr *to)
{
	return query_port(c, port, (struct ibv_port_attr *)to, offsetof(struct ibv_port_attr, port_cap_flags2));
}

#define CAPABILITIES (IBV_DEVICE_SYS_IMAGE_GUID | IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B)

int ibv_query_device(struct ibv_context *c, struct ibv_device_attr *to)
{
	(void)c;
	*to = (struct ibv_device_attr){
		.fw_ver = "1.0",
		.node_guid = ibv_get_device_guid(NULL),
		.sys_image_guid = ibv_get_device_guid(NULL),
		.max_mr_size = 1ull << 40,
		.page_size_cap = 4096,
		.vendor_id = 0x020000, /* of Ethernet addresses as ours: locally administered */
		.vendor_part_id = 1,
		.hw_ver = 1,
		.max_qp = QP_MAX,
		.max_qp_wr = WR_MAX,
		.device_cap_flags = CAPABILITIES,
		.max_sge = SGE_MAX,
		.max_sge_rd = SGE_MAX,
		.max_cq = 65536,
		.max_cqe = CQE_MAX - 1,
		.max_mr = 16384,
		.max_mw = 16384,
		.max_pd = 65536,
		.max_qp_rd_atom = READS_MAX,
		.max_qp_init_rd_atom = READS_MAX,
		.max_res_rd_atom = READS_MAX * QP_MAX,
		.atomic_cap = IBV_ATOMIC_HCA,
		.max_ah = 65536,
		.max_srq = SRQ_MAX,
		.max_srq_wr = WR_MAX,
		.max_srq_sge = SGE_MAX,
		.max_pkeys = 1,
		.local_ca_ack_delay = 1,
		.phys_port_cnt = 1,
	};
	return 0;
}

static int query_device_ex(struct ibv_context *c, const struct ibv_query_device_ex_input *in,
			   struct ibv_device_attr_ex *to, size_t room)
{
	struct ibv_device_attr_ex a = {
		.phys_port_cnt_ex = 1,
		.completion_timestamp_mask = UINT64_MAX,
		.max_dm_size = DEVICE_MEMORY_MAX,
		.odp_caps = {.general_caps = IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT,
			     .per_transport_caps = {.rc_odp_caps = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_WRITE |
								   IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC | IBV_ODP_SUPPORT_SRQ_RECV,
						    .uc_odp_caps = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_SRQ_RECV,
						    .ud_odp_caps = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_SRQ_RECV}},
		.hca_core_clock = 1000000, /* kHz: its clock counts nanoseconds */
		.device_cap_flags_ex = CAPABILITIES,
	};

	if (in && in->comp_mask)
		return EINVAL;
	ibv_query_device(c, &a.orig_attr);
	memset(to, 0, room);
	memcpy(to, &a, room < sizeof a ? room : sizeof a);
	return 0;
}

static int query_values(struct ibv_context *c, struct ibv_values_ex *v)
{
	(void)c;
	if (v->comp_mask & IBV_VALUES_MASK_RAW_CLOCK) {
		uint64_t ns = railbed_now(0) / PS_PER_NS;
		v->raw_clock.tv_sec = (time_t)(ns / 1000000000);
		v->raw_clock.tv_nsec = (long)(ns % 1000000000);
	}
	v->comp_mask &= IBV_VALUES_MASK_RAW_CLOCK;
	return 0;
}

int ibv_query_gid(struct ibv_context *c, uint8_t port, int index, union ibv_gid *gid)
{
	(void)c;
	if (port != PORT || index < 0 || index > railbed_gid_index()) {
		errno = EINVAL;
		return -1;
	}
	if (index == railbed_gid_index()) {
		place_gid(place()->rank, gid);
		return 0;
	}
	gid->global.subnet_prefix = htobe64(0xfe80000000000000ull);
	gid->global.interface_id = ibv_get_device_guid(NULL);
	return 0;
}

int _ibv_query_gid_ex(struct ibv_context *c, uint32_t port, uint32_t index, struct ibv_gid_entry *e, uint32_t flags,
		      size_t room);
ssize_t _ibv_query_gid_table(struct ibv_context *c, struct ibv_gid_entry *e, size_t max, uint32_t flags, size_t room);
int ibv_query_gid_type(struct ibv_context *c, uint8_t port, unsigned int index, unsigned int *type);

int _ibv_query_gid_ex(struct ibv_context *c, uint32_t port, uint32_t index, struct ibv_gid_entry *e, uint32_t flags,
		      size_t room)
{
	struct ibv_gid_entry all = {.gid_index = index, .port_num = port};

	if (flags || room < sizeof all)
		return EOPNOTSUPP;
	if (port != PORT)
		return EINVAL;
	if (ibv_query_gid(c, PORT, (int)index, &all.gid))
		return ENODATA;
	all.gid_type = index == railbed_gid_index() ? IBV_GID_TYPE_ROCE_V2 : IBV_GID_TYPE_ROCE_V1;
	memcpy(e, &all, sizeof all);
	return 0;
}

ssize_t _ibv_query_gid_table(struct ibv_context *c, struct ibv_gid_entry *e, size_t max, uint32_t flags, size_t room)
{
	size_t count = 0;

	railbed_gid_index();
	if (max < GIDS)
		return -EINVAL;
	for (; count < GIDS; count++) {
		int wrong = _ibv_query_gid_ex(c, PORT, (uint32_t)count, (struct ibv_gid_entry *)((uint8_t *)e + count * room), flags, room);
		if (wrong)
			return -wrong;
	}
	return (ssize_t)count;
}

int ibv_query_gid_type(struct ibv_context *c, uint8_t port, unsigned int index, unsigned int *type)
{
	(void)c;
	*type = index == railbed_gid_index(); /* RoCE v2, else v1 */
	return port == PORT && index <= railbed_gid_index() ? 0 : (errno = EINVAL, -1);
}

int ibv_query_pkey(struct ibv_context *c, uint8_t port, int index, __be16 *key)
{
	(void)c;
	if (port != PORT || index) {
		errno = EINVAL;
		return -1;
	}
	*key = 0xffff;
	return 0;
}

int ibv_get_pkey_index(struct ibv_context *c, uint8_t port, __be16 key)
{
	(void)c;
	return port == PORT && key == 0xffff ? 0 : -1;
}

/* device_operations() - What of a context's table is answered here */
void device_operations(struct verbs_context *v)
{
	v->query_port = query_port;
	v->query_device_ex = query_device_ex;
	v->query_rt_values = query_values;
}
