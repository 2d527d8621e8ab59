/* The host's interface to the management network, which the kernel does not know; it has the NIC's address */
#include "emulated.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#define NAME "eth0"
#define MASK 0xff000000 /* all ranks are in 10.0.0.0/8 */

struct interface {
	struct ifaddrs head; /* first */
	struct sockaddr_in address, mask, broadcast;
	char name[sizeof NAME];
};

int getifaddrs(struct ifaddrs **list)
{
	struct interface *i = calloc(2, sizeof *i);
	uint32_t local = htonl(INADDR_LOOPBACK), here = railbed_address(railbed_rank());

	if (!i)
		return -1;
	for (int k = 0; k < 2; k++) {
		uint32_t address = k ? here : local;
		i[k].address = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = address};
		i[k].mask = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(MASK)};
		i[k].broadcast = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = address | htonl(~MASK)};
		strcpy(i[k].name, k ? NAME : "lo");
		i[k].head = (struct ifaddrs){
			.ifa_next = k ? NULL : &i[1].head,
			.ifa_name = i[k].name,
			.ifa_flags = IFF_UP | IFF_RUNNING | (k ? IFF_BROADCAST | IFF_MULTICAST : IFF_LOOPBACK),
			.ifa_addr = (struct sockaddr *)&i[k].address,
			.ifa_netmask = (struct sockaddr *)&i[k].mask,
			.ifa_broadaddr = (struct sockaddr *)&i[k].broadcast,
		};
	}
	*list = &i[0].head;
	return 0;
}

void freeifaddrs(struct ifaddrs *list)
{
	free(list);
}
