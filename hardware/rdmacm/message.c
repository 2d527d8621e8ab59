/* Messages of the connection manager, as they are on an identifier's socket */
#include "rdmacm.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAGIC 0x31634252 /* "RBc1" */

/* message_room() - What a program may send with each, and is told to have got: its message's room on a fabric, padded with zeros */
uint8_t message_room(const struct id *i, enum message_kind kind)
{
	if (is_datagram(i))
		return kind == REQ ? 180 : 136;
	switch (kind) {
	case REQ: return 56;
	case REP: return 196;
	case REJ: return 148;
	default: return 0;
	}
}

/* message_new() - One of an identifier, with what is known of it */
struct message message_new(struct id *i, enum message_kind kind)
{
	return (struct message){
		.magic = MAGIC,
		.kind = (uint16_t)kind,
		.space = (uint16_t)i->id.ps,
		.qp_num = i->qp_num,
		.psn = i->psn,
		.responder_resources = i->responder_resources,
		.initiator_depth = i->initiator_depth,
		.retry_count = i->retry_count,
		.rnr_retry_count = i->rnr_retry_count,
		.ece_vendor = i->ece.vendor_id,
		.ece_options = i->ece.options,
		.private_length = message_room(i, kind),
	};
}

/* message_set_private() - The program's own data; 0, or an error */
int message_set_private(struct message *m, const void *data, size_t length)
{
	if (length > m->private_length)
		return EINVAL;
	if (length)
		memcpy(m->private, data, length);
	return 0;
}

/* message_tell() - Messages are few and small: if one does not fit any more, nobody listens at the other end */
int message_tell(struct id *i, const struct message *m)
{
	ssize_t n = send(i->fd, m, sizeof *m, MSG_NOSIGNAL | MSG_DONTWAIT);

	return n == sizeof *m ? 0 : ECONNRESET;
}

/* id_tell() - One without data */
int id_tell(struct id *i, enum message_kind kind, uint32_t status)
{
	struct message m = message_new(i, kind);

	m.status = status;
	return message_tell(i, &m);
}

/* id_over() - Nothing is said any more */
void id_over(struct id *i)
{
	i->state = OVER;
	if (i->fd >= 0)
		close(i->fd);
	i->fd = -1;
}

/* message_is_whole() - A message from elsewhere is one only if all of it is as it must be */
bool message_is_whole(const struct id *i)
{
	const struct message *m = &i->in;

	return m->magic == MAGIC && m->kind >= REQ && m->kind <= DREP && m->private_length == message_room(i, m->kind);
}
