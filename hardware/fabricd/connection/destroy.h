/* Queue pairs that go (destroy.c) */
#ifndef CONNECTION_DESTROY_H
#define CONNECTION_DESTROY_H

struct fabric;
struct nic;
struct qp;

void qps_gone(struct fabric *f);
void qps_destroy(struct fabric *f, struct nic *n);
void qp_reset(struct fabric *f, struct qp *q);

#endif
