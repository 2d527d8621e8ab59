/* What stands about the fabric in the container: its NICs, their addresses, the clock
 *
 * The file (testbed/containers/programs.py writes it) has a line `railbed CLOCK DILATION MTU`, and for each rank in turn a
 * line `NAME ADDRESS RATE_BPS`.  Without it there is no device, and programs see none.
 */
#include "railbed.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct place read_place;

static void take_in(FILE *f, struct place *p)
{
	char clock[16], address[32];
	const char *rank = getenv("RAILBED_RANK");
	size_t room = 0;
	struct nic_place n;

	if (fscanf(f, "railbed %15s %u %u", clock, &p->dilation, &p->mtu) != 3 || !rank || !p->dilation)
		return;
	p->real = !strcmp(clock, "real");
	while (fscanf(f, "%31s %31s %" SCNu64, n.name, address, &n.rate_bps) == 3 && inet_pton(AF_INET, address, &n.address) == 1) {
		if (p->ranks == room) {
			room = 2 * room + 64;
			struct nic_place *more = realloc(p->nics, room * sizeof *more);
			if (!more)
				return;
			p->nics = more;
		}
		p->nics[p->ranks++] = n;
	}
	p->rank = (uint32_t)strtoul(rank, NULL, 10);
}

static void read_once(void)
{
	const char *path = getenv("RAILBED_NICS");
	FILE *f = fopen(path ? path : "/run/railbed/nics", "re");

	if (!f)
		return;
	take_in(f, &read_place);
	fclose(f);
}

/* place() - It; NULL if we are in no rank's container */
const struct place *place(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, read_once);
	return read_place.rank < read_place.ranks ? &read_place : NULL;
}

/* place_gid() - A rank's NIC as RoCE v2 names it: its IPv4 address, mapped */
void place_gid(uint32_t rank, union ibv_gid *gid)
{
	memset(gid, 0, sizeof *gid);
	gid->raw[10] = gid->raw[11] = 0xff;
	memcpy(&gid->raw[12], &place()->nics[rank].address, 4);
}

/* place_rank_of() - Whose GID it is */
bool place_rank_of(const union ibv_gid *gid, uint32_t *rank)
{
	const struct place *p = place();
	union ibv_gid each;

	for (uint32_t r = 0; p && r < p->ranks; r++) {
		place_gid(r, &each);
		if (!memcmp(&each, gid, sizeof each)) {
			*rank = r;
			return true;
		}
	}
	return false;
}

unsigned railbed_rank(void)
{
	return place() ? place()->rank : 0;
}

/* railbed_rank_of() - Whose IPv4 address (network order) it is */
bool railbed_rank_of(uint32_t address, uint32_t *rank)
{
	union ibv_gid gid = {.raw = {[10] = 0xff, [11] = 0xff}};

	memcpy(&gid.raw[12], &address, 4);
	return place_rank_of(&gid, rank);
}

/* railbed_address() - A rank's IPv4 address (network order) */
uint32_t railbed_address(uint32_t rank)
{
	return place() && rank < place()->ranks ? place()->nics[rank].address : 0;
}
