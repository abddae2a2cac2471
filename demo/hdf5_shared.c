/*
 * hdf5_shared: N ranks write one HDF5 file; any number of ranks read it back and compare.
 *
 *   mpiexec -n 4 hdf5_shared --write FILE [--collective | --independent] [--elements N]
 *   mpiexec -n 3 hdf5_shared --verify FILE
 *
 * Nothing here knows about ccPFS. The file holds four datasets, each cut among the ranks in another way:
 *
 *   /linear/segments   1-D, one contiguous piece for each rank
 *   /linear/strided    1-D, small blocks of the ranks in turn (N-1 strided)
 *   /grid/rows         2-D, whole rows for each rank
 *   /grid/columns      2-D, a band of columns for each rank: every row of the file is shared by all ranks
 *
 * The sizes are no multiple of a page or a sector, so the pieces of two ranks meet inside pages. Every value
 * is a function of its dataset and its global index; a reader needs nothing but the file to check it.
 */
#include <errno.h>
#include <hdf5.h>
#include <inttypes.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STRIDED_BLOCK = 251, GRID_COLUMNS = 257, DATASETS = 4 };

/* How a dataset is cut among the ranks that write it. */
enum cut { CUT_SEGMENTS, CUT_STRIDED, CUT_ROWS, CUT_COLUMNS };

static const struct dataset {
    const char *group, *name;
    enum cut cut;
    uint64_t seed;
} datasets[DATASETS] = {
    {"linear", "segments", CUT_SEGMENTS, 0x51ed270b1},
    {"linear", "strided", CUT_STRIDED, 0x9e3779b97},
    {"grid", "rows", CUT_ROWS, 0x2545f4914},
    {"grid", "columns", CUT_COLUMNS, 0xd1342543d},
};

struct options {
    const char *file;
    int verify;
    int collective;
    uint64_t elements; /* of one rank in one dataset */
};

static int rank, ranks;

static void fail(const char *what)
{
    fprintf(stderr, "hdf5_shared: rank %d: %s\n", rank, what);
    H5Eprint2(H5E_DEFAULT, stderr);
    MPI_Abort(MPI_COMM_WORLD, 2);
    exit(2);
}

/* HDF5 identifiers and results are negative when the call failed. */
#define CHECK(call) check((int64_t)(call), #call)
static int64_t check(int64_t result, const char *what)
{
    if (result < 0)
        fail(what);
    return result;
}

static void *allocate(size_t bytes)
{
    void *memory = malloc(bytes ? bytes : 1);
    if (!memory)
        fail("out of memory");
    return memory;
}

/* The value at one global index: splitmix64, so that neighbours and datasets differ in every byte. */
static int64_t value_at(uint64_t seed, uint64_t index)
{
    uint64_t z = seed + (index + 1) * UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (int64_t)(z ^ (z >> 31));
}

/* One writer's part of one dataset: a hyperslab of a space of one or two dimensions. */
struct part {
    int dimensions;
    hsize_t size[2], start[2], stride[2], count[2], block[2];
    hsize_t elements;
};

static struct part part_of(enum cut cut, uint64_t writer, uint64_t writers, uint64_t elements)
{
    uint64_t blocks = elements / STRIDED_BLOCK + (elements < STRIDED_BLOCK);
    uint64_t rows = elements / GRID_COLUMNS + (elements < GRID_COLUMNS);
    struct part p = {.dimensions = 1, .stride = {1, 1}, .count = {1, 1}, .block = {1, 1}, .size = {1, 1}};
    switch (cut) {
    case CUT_SEGMENTS:
        p.size[0] = writers * elements;
        p.start[0] = writer * elements;
        p.block[0] = elements;
        break;
    case CUT_STRIDED:
        p.size[0] = writers * blocks * STRIDED_BLOCK;
        p.start[0] = writer * STRIDED_BLOCK;
        p.stride[0] = writers * STRIDED_BLOCK;
        p.count[0] = blocks;
        p.block[0] = STRIDED_BLOCK;
        break;
    case CUT_ROWS:
        p.dimensions = 2;
        p.size[0] = writers * rows;
        p.size[1] = GRID_COLUMNS;
        p.start[0] = writer * rows;
        p.block[0] = rows;
        p.block[1] = GRID_COLUMNS;
        break;
    case CUT_COLUMNS:
        p.dimensions = 2;
        p.size[0] = rows;
        p.size[1] = writers * GRID_COLUMNS;
        p.start[1] = writer * GRID_COLUMNS;
        p.block[0] = rows;
        p.block[1] = GRID_COLUMNS;
        break;
    }
    for (int d = 0; d < 2; d++)
        if (p.stride[d] < p.block[d])
            p.stride[d] = p.block[d];
    p.elements = p.count[0] * p.block[0] * p.count[1] * p.block[1];
    return p;
}

/* The global index of the n-th element of a part, in the order HDF5 walks a hyperslab. */
static uint64_t global_index(const struct part *p, uint64_t n)
{
    uint64_t width = p->dimensions == 2 ? p->block[1] : 1;
    uint64_t line = n / width, column = n % width;
    uint64_t along = p->start[0] + line / p->block[0] * p->stride[0] + line % p->block[0];
    return p->dimensions == 2 ? along * p->size[1] + p->start[1] + column : along;
}

static hid_t select_part(const struct part *p)
{
    hid_t space = CHECK(H5Screate_simple(p->dimensions, p->size, NULL));
    CHECK(H5Sselect_hyperslab(space, H5S_SELECT_SET, p->start, p->stride, p->count, p->block));
    return space;
}

static hid_t open_by_all_ranks(void)
{
    hid_t access = CHECK(H5Pcreate(H5P_FILE_ACCESS));
    CHECK(H5Pset_fapl_mpio(access, MPI_COMM_WORLD, MPI_INFO_NULL));
    return access;
}

static void write_number(hid_t file, const char *name, uint64_t value)
{
    hid_t space = CHECK(H5Screate(H5S_SCALAR));
    hid_t attribute = CHECK(H5Acreate2(file, name, H5T_STD_U64LE, space, H5P_DEFAULT, H5P_DEFAULT));
    CHECK(H5Awrite(attribute, H5T_NATIVE_UINT64, &value));
    CHECK(H5Aclose(attribute));
    CHECK(H5Sclose(space));
}

static uint64_t read_number(hid_t file, const char *name)
{
    uint64_t value = 0;
    hid_t attribute = CHECK(H5Aopen(file, name, H5P_DEFAULT));
    CHECK(H5Aread(attribute, H5T_NATIVE_UINT64, &value));
    CHECK(H5Aclose(attribute));
    return value;
}

static void write_dataset(hid_t file, const struct dataset *d, const struct options *o)
{
    struct part p = part_of(d->cut, rank, ranks, o->elements);
    int64_t *values = allocate(p.elements * sizeof *values);
    for (uint64_t n = 0; n < p.elements; n++)
        values[n] = value_at(d->seed, global_index(&p, n));

    hid_t group = H5Lexists(file, d->group, H5P_DEFAULT) > 0
                      ? CHECK(H5Gopen2(file, d->group, H5P_DEFAULT))
                      : CHECK(H5Gcreate2(file, d->group, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    hid_t in_file = select_part(&p);
    hid_t in_memory = CHECK(H5Screate_simple(1, &p.elements, NULL));
    hid_t transfer = CHECK(H5Pcreate(H5P_DATASET_XFER));
    CHECK(H5Pset_dxpl_mpio(transfer, o->collective ? H5FD_MPIO_COLLECTIVE : H5FD_MPIO_INDEPENDENT));
    hid_t set = CHECK(H5Dcreate2(group, d->name, H5T_STD_I64LE, in_file, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    CHECK(H5Dwrite(set, H5T_NATIVE_INT64, in_memory, in_file, transfer, values));

    CHECK(H5Dclose(set));
    CHECK(H5Pclose(transfer));
    CHECK(H5Sclose(in_memory));
    CHECK(H5Sclose(in_file));
    CHECK(H5Gclose(group));
    free(values);
}

static void write_file(const struct options *o)
{
    hid_t access = open_by_all_ranks();
    hid_t file = CHECK(H5Fcreate(o->file, H5F_ACC_TRUNC, H5P_DEFAULT, access));
    write_number(file, "ranks", ranks);
    write_number(file, "elements", o->elements);
    for (int i = 0; i < DATASETS; i++)
        write_dataset(file, &datasets[i], o);
    CHECK(H5Fflush(file, H5F_SCOPE_GLOBAL));
    CHECK(H5Fclose(file));
    CHECK(H5Pclose(access));
}

/* Reads what one writer wrote; returns the number of wrong elements and reports the first. */
static uint64_t verify_part(hid_t file, const struct dataset *d, uint64_t writer, uint64_t writers, uint64_t elements)
{
    char path[64];
    snprintf(path, sizeof path, "/%s/%s", d->group, d->name);
    struct part p = part_of(d->cut, writer, writers, elements);
    int64_t *values = allocate(p.elements * sizeof *values);

    hid_t set = CHECK(H5Dopen2(file, path, H5P_DEFAULT));
    hid_t in_file = select_part(&p);
    hid_t in_memory = CHECK(H5Screate_simple(1, &p.elements, NULL));
    CHECK(H5Dread(set, H5T_NATIVE_INT64, in_memory, in_file, H5P_DEFAULT, values));

    uint64_t wrong = 0;
    for (uint64_t n = 0; n < p.elements; n++) {
        uint64_t index = global_index(&p, n);
        int64_t expected = value_at(d->seed, index);
        if (values[n] == expected)
            continue;
        if (wrong++ == 0)
            fprintf(stderr,
                    "hdf5_shared: %s[%" PRIu64 "], written by rank %" PRIu64 ": found %" PRId64
                    ", expected %" PRId64 "\n",
                    path, index, writer, values[n], expected);
    }
    CHECK(H5Sclose(in_memory));
    CHECK(H5Sclose(in_file));
    CHECK(H5Dclose(set));
    free(values);
    return wrong;
}

/* Every writer's part is read by a rank with another number than the writer's. Returns whether all is right. */
static int verify_file(const struct options *o)
{
    hid_t access = open_by_all_ranks();
    hid_t file = CHECK(H5Fopen(o->file, H5F_ACC_RDONLY, access));
    uint64_t writers = read_number(file, "ranks"), elements = read_number(file, "elements");
    uint64_t wrong = 0, wrong_all = 0, checked = 0;
    for (int i = 0; i < DATASETS; i++)
        for (uint64_t writer = 0; writer < writers; writer++) {
            if ((writer + 1) % ranks == (uint64_t)rank)
                wrong += verify_part(file, &datasets[i], writer, writers, elements);
            checked += part_of(datasets[i].cut, writer, writers, elements).elements;
        }
    CHECK(H5Fclose(file));
    CHECK(H5Pclose(access));
    MPI_Allreduce(&wrong, &wrong_all, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        printf("%s: %" PRIu64 " elements of %" PRIu64 " writers read by %d readers, %" PRIu64 " wrong\n", o->file,
               checked, writers, ranks, wrong_all);
    return wrong_all == 0;
}

static void usage(void)
{
    if (rank == 0)
        fputs("usage: hdf5_shared --write FILE [--collective | --independent] [--elements N]\n"
              "       hdf5_shared --verify FILE\n",
              stderr);
    MPI_Finalize();
    exit(1);
}

static struct options parse(int argc, char **argv)
{
    struct options o = {.elements = 65521};
    for (int i = 1; i < argc; i++) {
        int has_value = i + 1 < argc;
        if (!strcmp(argv[i], "--write") && has_value) {
            o.file = argv[++i];
        } else if (!strcmp(argv[i], "--verify") && has_value) {
            o.file = argv[++i];
            o.verify = 1;
        } else if (!strcmp(argv[i], "--collective")) {
            o.collective = 1;
        } else if (!strcmp(argv[i], "--independent")) {
            o.collective = 0;
        } else if (!strcmp(argv[i], "--elements") && has_value) {
            char *end;
            errno = 0;
            o.elements = strtoull(argv[++i], &end, 10);
            if (errno || *end || o.elements == 0)
                usage();
        } else {
            usage();
        }
    }
    if (!o.file)
        usage();
    return o;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    struct options o = parse(argc, argv);
    int right = 1;
    if (o.verify)
        right = verify_file(&o);
    else
        write_file(&o);
    MPI_Finalize();
    return right ? 0 : 3;
}
