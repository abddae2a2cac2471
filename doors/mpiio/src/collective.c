/*
 * collective.c: transfers that all ranks of a file make together.
 *
 * Where the accesses of the ranks lie apart, or in large pieces, each rank makes its own: ccPFS keeps their locks apart. Where small
 * pieces of several ranks alternate, ranks exchange them first, so that some of them, the aggregators, have whole
 * units of the file ("two-phase", ROMIO's words). Unit u of the file belongs to aggregator u mod n, in every call, so that
 * aggregators keep their locks.
 */
#include "exchange.h"

#include <stdlib.h>
#include <string.h>

/*
 * Pieces that are as long as this on average are not exchanged; docs/mpiio.md has the measurement. Reads take many pieces under one lock at
 * the cost of copying.
 */
enum { WRITE_PIECE_BYTES_ALONE = 8192, READ_PIECE_BYTES_ALONE = 128 };
enum { UNIT_BYTES_MAX = 64 << 20, UNIT_ALIGNMENT = 4096 };

/* What each rank says about its part. */
struct part_of_rank {
    int64_t start, end, bytes, pieces, is_monotone;
};

static void describe(const struct transfer *transfer, struct part_of_rank *own)
{
    const struct file *file = transfer->file;
    const struct flat *tile = &file->tile;
    int64_t bytes = transfer->memory.bytes;

    memset(own, 0, sizeof *own);
    own->is_monotone = file->is_monotone;
    if (bytes == 0)
        return;
    struct cursor first = cursor_at(tile, file->displacement, transfer->position, bytes);
    struct cursor last = cursor_at(tile, file->displacement, transfer->position + bytes - 1, 1);
    own->start = cursor_next(&first, 1).offset;
    own->end = cursor_next(&last, 1).offset + 1;
    own->bytes = bytes;
    first = cursor_at(tile, file->displacement, transfer->position, bytes);
    own->pieces = cursor_is_contiguous(&first) ? 1 : 1 + bytes * (int64_t)tile->count / tile->bytes;
}

static int by_start(const void *a, const void *b)
{
    const struct part_of_rank *one = a, *other = b;
    return one->start < other->start ? -1 : one->start > other->start;
}

/* Whether ranks should exchange; `least` and `most` become the bounds of all parts. Sorts the parts. */
static int is_worth_exchanging(const struct file *file, int is_write, struct part_of_rank *parts, int64_t *least, int64_t *most)
{
    int64_t how = is_write ? file->hints.cb_write : file->hints.cb_read;
    int64_t bytes = 0, pieces = 0, end = -1;
    int is_interleaved = 0, is_monotone = 1;

    *least = INT64_MAX;
    *most = 0;
    qsort(parts, (size_t)file->ranks, sizeof *parts, by_start);
    for (int rank = 0; rank < file->ranks; rank++) {
        is_monotone = is_monotone && parts[rank].is_monotone;
        if (parts[rank].bytes == 0)
            continue;
        is_interleaved = is_interleaved || parts[rank].start < end;
        end = end > parts[rank].end ? end : parts[rank].end;
        *least = *least < parts[rank].start ? *least : parts[rank].start;
        bytes += parts[rank].bytes;
        pieces += parts[rank].pieces;
    }
    *most = end;
    if (bytes == 0 || !is_monotone || how == 0)
        return 0;
    int64_t alone = is_write ? WRITE_PIECE_BYTES_ALONE : READ_PIECE_BYTES_ALONE;
    /* Locks ahead are for aggregators: who asks for them wants some. */
    return how == 1 || (is_write && locks_ahead(file)) || (is_interleaved && bytes / pieces < alone);
}

static int64_t rounded_up(int64_t value, int64_t multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

static void make_plan(const struct file *file, int is_write, int64_t least, int64_t most, struct plan *plan)
{
    int64_t buffer = file->hints.cb_buffer_bytes;
    int64_t unit = file->hints.stripe_bytes;

    plan->aggregators = file->hints.cb_nodes;
    if (buffer > UNIT_BYTES_MAX)
        buffer = UNIT_BYTES_MAX;
    if (file->hints.stripe_count == 1 && !(is_write && locks_ahead(file))) {
        /* One lock for all of the file: each aggregator gets as much of it in one piece as it can. */
        int64_t share = rounded_up((most - least + plan->aggregators - 1) / plan->aggregators, UNIT_ALIGNMENT);
        unit = share < buffer ? share : buffer;
    } else if (unit > UNIT_BYTES_MAX) {
        unit = buffer;
    }
    if (unit < 1)
        unit = 1;
    plan->unit_bytes = unit;
    plan->units = buffer / unit > 0 ? buffer / unit : 1;
    plan->first_unit = least / unit;
    int64_t units = (most - 1) / unit - plan->first_unit + 1;
    int64_t each = plan->units * plan->aggregators;
    plan->rounds = (units + each - 1) / each;
}

int transfer_together(struct transfer *transfer, int64_t *done)
{
    struct file *file = transfer->file;
    int64_t how = transfer->is_write ? file->hints.cb_write : file->hints.cb_read;
    struct part_of_rank own, *parts;
    struct plan plan;
    int64_t least, most;

    /*
     * Atomic mode is about each rank's access as a whole: pieces of it must not go different ways. Members of a group do not see what
     * others write: a rank must have what it has written itself, unless the program says that it does not read it.
     */
    if (file->ranks == 1 || file->is_atomic || how == 0 || (file->is_member && how != 1))
        return transfer->memory.bytes > 0 ? transfer_alone(transfer, done) : MPI_SUCCESS;
    parts = calloc((size_t)file->ranks, sizeof *parts);
    if (!parts)
        return MPI_ERR_NO_MEM;
    describe(transfer, &own);
    double begun = now();
    PMPI_Allgather(&own, 5, MPI_INT64_T, parts, 5, MPI_INT64_T, file->comm);
    tally_of(file, transfer->is_write)->wait += now() - begun;
    int is_worth = is_worth_exchanging(file, transfer->is_write, parts, &least, &most);
    free(parts);
    if (!is_worth)
        return transfer->memory.bytes > 0 ? transfer_alone(transfer, done) : MPI_SUCCESS;
    make_plan(file, transfer->is_write, least, most, &plan);
    return exchange_all(transfer, &plan, done);
}
