/*
 * statistics.c: what was counted and timed for a file, printed at close when the environment asks for it.
 */
#define _GNU_SOURCE
#include "layer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

double now(void)
{
    return PMPI_Wtime();
}

struct tally *tally_of(struct file *file, int is_write)
{
    return is_write ? &file->writes : &file->reads;
}

void count_call(struct file *file, int is_write, int64_t offset, int64_t bytes)
{
    struct tally *tally = tally_of(file, is_write);

    tally->system_calls++;
    tally->bytes += bytes;
    if (bytes == file->hints.stripe_bytes)
        tally->stripe_sized_calls++;
    if (tally->system_calls > 1 && offset != tally->last_end) {
        tally->gaps++;
        tally->gap_bytes += offset > tally->last_end ? offset - tally->last_end : tally->last_end - offset;
    }
    tally->last_end = offset + bytes;
}

int is_wanted(const char *ours, const char *theirs)
{
    const char *value = getenv(ours);
    if (!value)
        value = getenv(theirs);
    return value && *value && strcmp(value, "0") != 0;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Sums over all ranks, at rank 0. */
static void sum(struct file *file, const struct tally *own, struct tally *all, int64_t *callers)
{
    int64_t mine[16] = {own->independent_calls, own->collective_calls, own->two_phase_calls, own->system_calls,
                        own->stripe_sized_calls, own->bytes, own->gaps, own->gap_bytes, own->independent_calls > 0,
                        own->aggregators_one, own->aggregators_half, own->aggregators_most, own->aggregators_all,
                        own->ahead_extents, own->ahead_hits, own->ahead_misses};
    int64_t total[16] = {0};

    PMPI_Reduce(mine, total, 16, MPI_INT64_T, MPI_SUM, 0, file->comm);
    memset(all, 0, sizeof *all);
    all->independent_calls = total[0];
    all->collective_calls = total[1];
    all->two_phase_calls = total[2];
    all->system_calls = total[3];
    all->stripe_sized_calls = total[4];
    all->bytes = total[5];
    all->gaps = total[6];
    all->gap_bytes = total[7];
    *callers = total[8];
    all->aggregators_one = total[9];
    all->aggregators_half = total[10];
    all->aggregators_most = total[11];
    all->aggregators_all = total[12];
    all->ahead_extents = total[13];
    all->ahead_hits = total[14];
    all->ahead_misses = total[15];
}

static void print_patterns(struct file *file, int is_write, const struct tally *all, int64_t callers, const uint64_t *locks)
{
    const char *noun = is_write ? "write" : "read";
    const char *actors = is_write ? "writers" : "readers";
    int64_t nodes = file->hints.cb_nodes;

    fprintf(stderr, "+--------------------------------------------------------+\n");
    fprintf(stderr, "| MPIIO %s access patterns for %s\n", noun, base_name(file->path));
    fprintf(stderr, "|   independent %-5ss      = %lld\n", noun, (long long)all->independent_calls);
    fprintf(stderr, "|   collective %-5ss       = %lld\n", noun, (long long)all->collective_calls);
    fprintf(stderr, "|   independent %s     = %lld\n", actors, (long long)callers);
    fprintf(stderr, "|   aggregators             = %lld\n", (long long)nodes);
    fprintf(stderr, "|   stripe count            = %lld\n", (long long)file->hints.stripe_count);
    fprintf(stderr, "|   stripe size             = %lld\n", (long long)file->hints.stripe_bytes);
    fprintf(stderr, "|   system %-5ss           = %lld\n", noun, (long long)all->system_calls);
    fprintf(stderr, "|   stripe sized %-5ss     = %lld\n", noun, (long long)all->stripe_sized_calls);
    fprintf(stderr, "|   aggregators active      = %lld,%lld,%lld,%lld (1,<=%lld,>%lld,%lld)\n",
            (long long)all->aggregators_one, (long long)all->aggregators_half, (long long)all->aggregators_most,
            (long long)all->aggregators_all, (long long)(nodes / 2), (long long)(nodes / 2), (long long)nodes);
    fprintf(stderr, "|   total bytes for %-5ss  = %lld = %lld MiB = %lld GiB\n", noun, (long long)all->bytes,
            (long long)(all->bytes >> 20), (long long)(all->bytes >> 30));
    fprintf(stderr, "|   ave system %-5s size   = %lld\n", noun,
            (long long)(all->system_calls ? all->bytes / all->system_calls : 0));
    if (is_write) {
        fprintf(stderr, "|   read-modify-write count = 0\n");
        fprintf(stderr, "|   read-modify-write bytes = 0\n");
    }
    fprintf(stderr, "|   number of %-5s gaps    = %lld\n", noun, (long long)all->gaps);
    fprintf(stderr, "|   ave %-5s gap size      = %lld\n", noun, (long long)(all->gaps ? all->gap_bytes / all->gaps : 0));
    fprintf(stderr, "|   lock requests           = %llu\n", (unsigned long long)locks[0]);
    fprintf(stderr, "|   lock cache hits         = %llu\n", (unsigned long long)locks[1]);
    if (is_write && locks_ahead(file)) {
        fprintf(stderr, "|   lock ahead extent count = %lld\n", (long long)all->ahead_extents);
        fprintf(stderr, "|   lock ahead write hits   = %lld\n", (long long)all->ahead_hits);
        fprintf(stderr, "|   lock ahead write misses = %lld\n", (long long)all->ahead_misses);
    }
    fprintf(stderr, "+--------------------------------------------------------+\n");
}

/* One phase: minimum, maximum and average over the ranks that took part. */
struct phase {
    const char *name;
    double own;
};

static void print_phases(struct file *file, int is_write, const struct tally *own)
{
    int is_active = own->bytes > 0;
    double other = own->total - own->wait - own->exchange - own->assemble - own->device;
    const struct phase phases[] = {
        {"total", own->total},        {"wait for coll", own->wait}, {"data send", own->exchange},
        {"local compute", own->assemble}, {is_write ? "file write" : "file read", own->device}, {"other", other > 0 ? other : 0},
    };
    enum { PHASES = sizeof phases / sizeof phases[0] };
    double least[PHASES], most[PHASES], sums[PHASES], mine[PHASES], low[PHASES];
    int64_t actives = 0, active = is_active, own_bytes = own->bytes, bytes = 0;

    for (int i = 0; i < PHASES; i++) {
        mine[i] = is_active ? phases[i].own : 0;
        low[i] = is_active ? phases[i].own : 1e300;
    }
    PMPI_Reduce(low, least, PHASES, MPI_DOUBLE, MPI_MIN, 0, file->comm);
    PMPI_Reduce(mine, most, PHASES, MPI_DOUBLE, MPI_MAX, 0, file->comm);
    PMPI_Reduce(mine, sums, PHASES, MPI_DOUBLE, MPI_SUM, 0, file->comm);
    PMPI_Reduce(&active, &actives, 1, MPI_INT64_T, MPI_SUM, 0, file->comm);
    PMPI_Reduce(&own_bytes, &bytes, 1, MPI_INT64_T, MPI_SUM, 0, file->comm);
    if (file->rank != 0 || actives == 0)
        return;
    double mebibytes = (double)bytes / (1 << 20);
    fprintf(stderr, "+--------------------------------------------------------+\n");
    fprintf(stderr, "| MPIIO %s by phases, %s only, for %s\n", is_write ? "write" : "read", is_write ? "writers" : "readers",
            base_name(file->path));
    fprintf(stderr, "|   time in ms             min         max         ave\n");
    for (int i = 0; i < PHASES; i++) {
        double average = sums[i] / (double)actives;
        int percent = sums[0] > 0 ? (int)(100.0 * sums[i] / sums[0] + 0.5) : 0;
        fprintf(stderr, "|   %-13s = %11.3f %11.3f %11.3f %3d%%\n", phases[i].name, least[i] * 1e3, most[i] * 1e3, average * 1e3,
                percent);
    }
    fprintf(stderr, "|   data send BW (MiB/s) = %.3f\n", sums[2] > 0 ? mebibytes / (sums[2] / (double)actives) : 0.0);
    fprintf(stderr, "|   raw %s BW (MiB/s) = %.3f\n", is_write ? "write" : "read",
            sums[4] > 0 ? mebibytes / (sums[4] / (double)actives) : 0.0);
    fprintf(stderr, "|   net %s BW (MiB/s) = %.3f\n", is_write ? "write" : "read", most[0] > 0 ? mebibytes / most[0] : 0.0);
    fprintf(stderr, "+--------------------------------------------------------+\n");
}

void statistics_report(struct file *file)
{
    int wanted[2] = {is_wanted("CCPFS_MPIIO_STATS", "MPICH_MPIIO_STATS"), is_wanted("CCPFS_MPIIO_TIMERS", "MPICH_MPIIO_TIMERS")};
    uint64_t after = 0, mine[2] = {0, 0}, locks[2] = {0, 0};

    PMPI_Bcast(wanted, 2, MPI_INT, 0, file->comm);
    if (wanted[0]) {
        if (library()->statistic("lock_requests", &after) == 0)
            mine[0] = after - file->lock_requests;
        if (library()->statistic("lock_hits", &after) == 0)
            mine[1] = after - file->lock_hits;
        PMPI_Reduce(mine, locks, 2, MPI_UINT64_T, MPI_SUM, 0, file->comm);
    }
    for (int is_write = 0; is_write < 2; is_write++) {
        const struct tally *own = tally_of(file, is_write);
        if (wanted[0]) {
            struct tally all;
            int64_t callers;
            sum(file, own, &all, &callers);
            if (file->rank == 0 && all.independent_calls + all.collective_calls > 0)
                print_patterns(file, is_write, &all, callers, locks);
        }
        if (wanted[1])
            print_phases(file, is_write, own);
    }
}
