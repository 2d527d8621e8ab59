/* IPv4 (ip.c). */
#ifndef WIRE_IP_H
#define WIRE_IP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/ethernet.h"

#define IPV4_BYTES 20
#define TTL_SENT 64 /* of every packet as it leaves its sender */
/* The ECN bits of the type of service */
#define ECN_ECT0 2
#define ECN_CE 3

bool is_ipv4(const uint8_t *frame, size_t len);
void ip_set_tos(uint8_t *frame, uint8_t tos);
void ip_cut(uint8_t *frame, uint32_t len);
bool ip_hop(uint8_t *frame, size_t len);
void mac_of(uint32_t ip, uint8_t mac[6]);

#endif
