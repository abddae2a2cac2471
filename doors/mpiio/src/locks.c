/*
 * locks.c: what hints say about locks: how noncontiguous ones are asked for, locks ahead of an aggregator's units, and group locks.
 */
#include "layer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Cray's hint has one number for what Lustre's has in two. */
enum { LOCK_MODE_GROUP = 1, LOCK_MODE_AHEAD = 2 };
/* A call takes no more; with as many, Lustre's hint turns itself off. */
enum { ADVICES_MAX = 1023 };

static int is_writer(const struct file *file)
{
    return !(file->amode & MPI_MODE_RDONLY);
}

int locks_ahead(const struct file *file)
{
    return is_writer(file) && (file->hints.lock_ahead_write || file->hints.write_lock_mode == LOCK_MODE_AHEAD) &&
           file->hints.lock_ahead_extents > 0 && file->hints.lock_ahead_extents <= ADVICES_MAX;
}

static int wants_group(const struct file *file)
{
    /* A rank alone has nobody to share the file with, and may have it open with others in another group. */
    return is_writer(file) && file->hints.write_lock_mode == LOCK_MODE_GROUP && !file->is_atomic && file->ranks > 1;
}

/* All ranks or none; all of them call this, when none uses the file. A process in another group of the file keeps all out: it is a hint. */
int group_join(struct file *file)
{
    int mine[2] = {MPI_SUCCESS, 0}, worst[2];

    if (!wants_group(file))
        return MPI_SUCCESS;
    if (!file->is_member && library()->group_lock(file->handle, file->group) < 0) {
        if (errno == EBUSY)
            mine[1] = 1;
        else
            mine[0] = class_of_library();
    } else {
        file->is_member = 1;
    }
    PMPI_Allreduce(mine, worst, 2, MPI_INT, MPI_MAX, file->comm);
    if (worst[0] == MPI_SUCCESS && !worst[1]) {
        hint_set(file->strings, "romio_visibility_immediate", "false");
        return MPI_SUCCESS;
    }
    int left = agreed(file, group_leave(file));
    return worst[0] != MPI_SUCCESS ? worst[0] : left;
}

int group_leave(struct file *file)
{
    if (!file->is_member)
        return MPI_SUCCESS;
    file->is_member = 0;
    return library()->group_unlock(file->handle, file->group) < 0 ? class_of_library() : MPI_SUCCESS;
}

int locks_set_style(struct file *file)
{
    const char *kind = hint(file->strings, "ccpfs_lock_kind");
    const char *protocol = hint(file->strings, "ccpfs_lock_protocol");

    if (!*kind && !*protocol)
        return MPI_SUCCESS;
    /* One alone: the other as it is by default. */
    if (library()->lock_style(file->handle, *kind ? kind : "datatype", *protocol ? protocol : "alt-try") < 0)
        return errno == EINVAL ? MPI_SUCCESS : class_of_library();
    return MPI_SUCCESS;
}

/*
 * An aggregator is about to write the unit at `offset`: where its locks ahead do not reach, it asks for more of them, for this unit and
 * those that will be its own.
 */
void lock_ahead(struct file *file, int64_t offset, int64_t unit_bytes, int64_t aggregators)
{
    struct tally *tally = &file->writes;
    int64_t unit = offset / unit_bytes;
    struct ccpfs_advice *advices;

    if (offset >= file->ahead_start && offset < file->ahead_end) {
        tally->ahead_hits++;
        return;
    }
    tally->ahead_misses++;
    size_t count = (size_t)file->hints.lock_ahead_extents;
    advices = calloc(count, sizeof *advices);
    if (!advices)
        return;
    if (file->ahead_end == 0)
        library()->lock_expansion(file->handle, 0);
    for (size_t i = 0; i < count; i++) {
        advices[i].start = (uint64_t)((unit + (int64_t)i * aggregators) * unit_bytes);
        advices[i].end = advices[i].start + (uint64_t)unit_bytes;
    }
    if (library()->lockahead(file->handle, advices, count, 1) == 0) {
        for (size_t i = 0; i < count; i++)
            tally->ahead_extents += advices[i].result == 0;
        file->ahead_start = unit * unit_bytes;
        file->ahead_end = (int64_t)advices[count - 1].end;
    } else {
        /* It is advice: without it, locks are asked for when they are needed. */
        file->ahead_start = 0;
        file->ahead_end = INT64_MAX;
    }
    free(advices);
}
