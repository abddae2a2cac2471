/*
 * exchange.h: what collective.c decides and exchange.c does.
 */
#ifndef CCPFS_MPIIO_EXCHANGE_H
#define CCPFS_MPIIO_EXCHANGE_H

#include "layer.h"

/* How a transfer is cut up; the same on all ranks. */
struct plan {
    int64_t unit_bytes;
    int64_t aggregators;
    /* Units of each aggregator in one round. */
    int64_t units;
    int64_t first_unit, rounds;
};

/* Transfers by way of the aggregators, all ranks together. Returns the same MPI error class on all of them. */
int exchange_all(struct transfer *transfer, const struct plan *plan, int64_t *done);

#endif
