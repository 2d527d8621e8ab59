/* Transports
 *
 * Theory of Operation
 *
 * A transport is a part of what a NIC has in its configuration: congestion control, recovery, paths, classes.  It is
 * laid over the NIC's own for single queue pairs.  A NIC may have one for all of its queue pairs (`transport`), and a
 * worker may name one for each connection, by its number in the list that the request `transports` has told.
 *
 * Both ends go by it: the sender's queue pair sends by it (qp.p), and the receiver's answers by it (qp.answers), each over
 * what its own NIC has.  So a control's notifications come back to it from a NIC that itself sends by another.
 *
 * Whatever was told is known for ever, once: that it is the same is seen by its address.
 */
#include <string.h>

#include "cc/cc.h"
#include "config/params.h"
#include "config/transports.h"
#include "engine/fabric.h"
#include "nic/params.h"
#include "transport/congestion.h"

static const char *const keys[] = {"cc", "multipath", "fixed_port", "recovery", "ordering", "reorder_packets", "sack_bits", "sack_every",
				   "loss_after_ns", "probes", "ack_every", "timeout_ns", "retry", "rnr_timeout_ns", "rnr_retry",
				   "data_dscp", "data_class", "ack_dscp", "ack_class", "cnp_dscp", "cnp_class"};

static const char *wrong_with(const json_t *transport)
{
	struct nic_params trial = {.cc = &cc_none, .timeout = 1, .rnr_timeout = 1};
	const char *key;
	json_t *v;

	if (!json_is_object(transport))
		return "transport: an object is needed";
	json_object_foreach((json_t *)transport, key, v) {
		size_t i = 0;
		while (i < sizeof keys / sizeof keys[0] && strcmp(keys[i], key))
			i++;
		if (i == sizeof keys / sizeof keys[0])
			return "transport: a key that is the NIC's alone";
	}
	const char *wrong = nic_params_set(&trial, transport);
	return wrong || (trial.timeout && trial.rnr_timeout) ? wrong : "timeout_ns, rnr_timeout_ns: more than 0";
}

/* transport_known() - Keep a transport, if it is not known yet
 * @transport:	NULL: none
 * @known:	Set to what is kept, if nothing is wrong
 *
 * Return: NULL, or what is wrong
 */
const char *transport_known(struct fabric *f, json_t *transport, const json_t **known)
{
	const char *wrong = transport ? wrong_with(transport) : NULL;
	json_t *one;
	size_t i;

	*known = NULL;
	if (wrong || !transport)
		return wrong;
	if (!f->known_transports)
		f->known_transports = json_array();
	json_array_foreach(f->known_transports, i, one)
		if (json_equal(one, transport)) {
			*known = one;
			return NULL;
		}
	if (i == TRANSPORTS_KNOWN || json_array_append(f->known_transports, transport))
		return "transport: more than 16384 have been told";
	*known = transport;
	return NULL;
}

/* transports_name() - These are what workers name from now on, by their place: 1 is the first
 * Return: NULL, or what is wrong; then nothing has changed
 */
const char *transports_name(struct fabric *f, const json_t *list)
{
	json_t *named = json_array(), *one;
	const json_t *known;
	const char *wrong = NULL;
	size_t i;

	if (!json_is_array(list) || json_array_size(list) > TRANSPORTS_MAX)
		wrong = "transports: a list of up to 1024 is needed";
	json_array_foreach(list, i, one) {
		if (wrong || (wrong = transport_known(f, one, &known)))
			break;
		json_array_append(named, (json_t *)known);
	}
	if (wrong) {
		json_decref(named);
		return wrong;
	}
	json_decref(f->named_transports);
	f->named_transports = named;
	return NULL;
}
