/* Device memory: a little of the NIC's own, which what is sent from there, or put there, need not cross PCIe for
 *
 * The process and fabricd share a file for it.  The process writes there through its mapping of the NIC, which it does not
 * wait for; what it reads comes back over PCIe, 64 bytes at a time.
 */
#include "railbed.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "wire.h"

#define ALIGNED 4u /* of each access, as that NIC has it */
#define MOST_ALIGNED 6 /* log2 */
#define READ_BYTES 64
#define ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

struct dm {
	struct ibv_dm dm;
	struct dm *next;
	uint32_t key;
	unsigned forks;
	uint8_t *at;
	uint64_t bytes;
	struct dm_region {
		struct dm_region *next;
		const struct ibv_mr *mr;
	} *regions;
};

static struct dm *all;

static bool inside(const struct dm *d, uint64_t offset, uint64_t length)
{
	return !(offset % ALIGNED || length % ALIGNED || offset > d->bytes || length > d->bytes - offset);
}

static int write_to(struct ibv_dm *dm, uint64_t offset, const void *from, size_t length)
{
	struct dm *d = (struct dm *)dm;

	if (!inside(d, offset, length))
		return EFAULT;
	memcpy(d->at + offset, from, length);
	return 0;
}

static int read_from(void *to, struct ibv_dm *dm, uint64_t offset, size_t length)
{
	struct dm *d = (struct dm *)dm;

	if (!inside(d, offset, length))
		return EFAULT;
	session_lock();
	if (!session.real && session.fd >= 0)
		session.spend += (length + READ_BYTES - 1) / READ_BYTES * 2 * session.pcie;
	session_unlock();
	memcpy(to, d->at + offset, length);
	return 0;
}

/* A file of so many bytes, mapped at @at; -1, with errno */
static int new_file(uint64_t bytes, uint8_t **at)
{
	int fd = memfd_create("railbed-device", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0)
		return -1;
	*at = ftruncate(fd, (off_t)bytes) || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK)
		      ? MAP_FAILED
		      : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (*at != MAP_FAILED)
		return fd;
	syscall(SYS_close, fd);
	errno = ENOMEM;
	return -1;
}

struct ibv_dm *dm_alloc(struct ibv_context *c, struct ibv_alloc_dm_attr *a)
{
	struct wire_alloc_dm w = {.length = a->length};

	errno = EINVAL;
	if (a->comp_mask || !a->length || a->log_align_req > MOST_ALIGNED)
		return NULL;
	errno = ENOMEM;
	if (a->length > DEVICE_MEMORY_MAX)
		return NULL;
	struct dm *d = calloc(1, sizeof *d);
	int fd = d ? new_file(a->length, &d->at) : -1;
	if (fd < 0) {
		free(d);
		return NULL;
	}
	d->bytes = a->length;
	d->dm = (struct ibv_dm){.context = c, .memcpy_to_dm = write_to, .memcpy_from_dm = read_from};
	session_lock();
	d->key = d->dm.handle = session_open() ? memory_key(ALLOC_DM, &w, sizeof w, fd) : 0;
	d->forks = session.forks;
	if (d->key) {
		d->next = all;
		all = d;
	}
	session_unlock();
	int wrong = errno;
	syscall(SYS_close, fd);
	if (d->key)
		return &d->dm;
	munmap(d->at, d->bytes);
	free(d);
	errno = wrong;
	return NULL;
}

int dm_free(struct ibv_dm *dm)
{
	struct dm *d = (struct dm *)dm, **at = &all;

	session_lock();
	if (d->regions) {
		session_unlock();
		return EBUSY;
	}
	while (*at != d)
		at = &(*at)->next;
	*at = d->next;
	memory_forget(d->key, d->forks);
	session_now();
	session_unlock();
	munmap(d->at, d->bytes);
	free(d);
	return 0;
}

struct ibv_mr *dm_register(struct ibv_pd *pd, struct ibv_dm *dm, uint64_t offset, size_t length, unsigned access)
{
	struct dm *d = (struct dm *)dm;
	struct wire_register_dm w = {.length = length, .offset = offset, .key = d->key, .access = access & ACCESS, .domain = pd->handle};

	errno = EINVAL;
	if (!(access & IBV_ACCESS_ZERO_BASED) || access & ~(unsigned)(ACCESS | IBV_ACCESS_ZERO_BASED | IBV_ACCESS_RELAXED_ORDERING) ||
	    offset > d->bytes || length > d->bytes - offset)
		return NULL;
	struct dm_region *r = malloc(sizeof *r);
	if (!r)
		return NULL;
	session_lock();
	uint32_t key = d->forks == session.forks && session_open() ? memory_key(REGISTER_DM, &w, sizeof w, -1) : 0;
	*r = (struct dm_region){.next = d->regions, .mr = memory_region(pd, NULL, length, 0, 0, key)};
	if (r->mr)
		d->regions = r;
	else if (key)
		memory_forget(key, session.forks);
	session_unlock();
	if (r->mr)
		return (struct ibv_mr *)r->mr;
	free(r);
	return NULL;
}

/* dm_let_go() - A region goes: if it is of device memory, that may go, too */
void dm_let_go(const struct ibv_mr *mr)
{
	session_lock();
	for (struct dm *d = all; d; d = d->next)
		for (struct dm_region **at = &d->regions, *r; (r = *at); at = &r->next)
			if (r->mr == mr) {
				*at = r->next;
				free(r);
				session_unlock();
				return;
			}
	session_unlock();
}
