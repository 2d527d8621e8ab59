/* Pages of the process that are shared with fabricd (share.c) */
#ifndef SHARE_H
#define SHARE_H

#include <stdint.h>

int share_file(void);
int share_range(uint64_t start, uint64_t end);

/* A range of which not all need be there */
struct span {
	uint64_t start, end;
};
int share_present(const struct span *range, struct span *found, int room);
void share_before_fork(void);
void share_in_parent(void);
void share_in_child(void);

#endif
