/*
 * mpiio_calls: every function of MPI that reads or writes a file, with counts and positions. The file is left with one block for each rank and
 * call, filled with a letter for the rank.
 */
#include "mpiio_check.h"

enum { BLOCK = 1000, CALLS = 12 };

static char out[BLOCK], in[BLOCK];
static MPI_Status status;
static MPI_Request request;

/* The block must hold the letter of a rank. */
static void holds(const char *block, int owner)
{
    for (int i = 0; i < BLOCK; i++)
        CHECK(block[i] == 'a' + owner);
}

static MPI_Offset at(int call)
{
    return ((MPI_Offset)call * ranks + rank) * BLOCK;
}

static void wait_for(int bytes)
{
    int flag = 0;
    while (!flag)
        OK(MPI_Test(&request, &flag, &status));
    CHECK(bytes_of(&status) == bytes && request == MPI_REQUEST_NULL);
}

static void writes(MPI_File file)
{
    OK(MPI_File_write_at(file, at(0), out, BLOCK, MPI_CHAR, &status));
    CHECK(bytes_of(&status) == BLOCK);
    OK(MPI_File_write_at_all(file, at(1), out, BLOCK, MPI_CHAR, &status));
    CHECK(bytes_of(&status) == BLOCK);
    OK(MPI_File_iwrite_at(file, at(2), out, BLOCK, MPI_CHAR, &request));
    wait_for(BLOCK);
    OK(MPI_File_iwrite_at_all(file, at(3), out, BLOCK, MPI_CHAR, &request));
    wait_for(BLOCK);
    OK(MPI_File_write_at_all_begin(file, at(4), out, BLOCK, MPI_CHAR));
    OK(MPI_File_write_at_all_end(file, out, &status));
    CHECK(bytes_of(&status) == BLOCK);
    OK(MPI_File_seek(file, at(5), MPI_SEEK_SET));
    OK(MPI_File_write(file, out, BLOCK, MPI_CHAR, &status));
    OK(MPI_File_seek(file, at(6), MPI_SEEK_SET));
    OK(MPI_File_write_all(file, out, BLOCK, MPI_CHAR, &status));
    OK(MPI_File_seek(file, at(7) - at(6) - BLOCK, MPI_SEEK_CUR));
    OK(MPI_File_iwrite(file, out, BLOCK, MPI_CHAR, &request));
    wait_for(BLOCK);
    OK(MPI_File_seek(file, at(8), MPI_SEEK_SET));
    OK(MPI_File_iwrite_all(file, out, BLOCK, MPI_CHAR, &request));
    OK(MPI_Wait(&request, &status));
    CHECK(bytes_of(&status) == BLOCK);
    OK(MPI_File_seek(file, at(9), MPI_SEEK_SET));
    OK(MPI_File_write_all_begin(file, out, BLOCK, MPI_CHAR));
    OK(MPI_File_write_all_end(file, out, MPI_STATUS_IGNORE));
    OK(MPI_File_seek_shared(file, (MPI_Offset)10 * ranks * BLOCK, MPI_SEEK_SET));
    OK(MPI_File_write_ordered(file, out, BLOCK, MPI_CHAR, &status));
    CHECK(bytes_of(&status) == BLOCK);
    OK(MPI_File_write_ordered_begin(file, out, BLOCK, MPI_CHAR));
    OK(MPI_File_write_ordered_end(file, out, &status));
    CHECK(bytes_of(&status) == BLOCK);
}

#define READ_BACK(owner, call)                                                                                      \
    do {                                                                                                            \
        memset(in, 0, BLOCK);                                                                                       \
        OK(call);                                                                                                   \
        holds(in, owner);                                                                                           \
    } while (0)

static void reads(MPI_File file)
{
    READ_BACK(rank, MPI_File_read_at(file, at(0), in, BLOCK, MPI_CHAR, &status));
    CHECK(bytes_of(&status) == BLOCK);
    READ_BACK(rank, MPI_File_read_at_all(file, at(1), in, BLOCK, MPI_CHAR, &status));
    OK(MPI_File_iread_at(file, at(2), in, BLOCK, MPI_CHAR, &request));
    wait_for(BLOCK);
    holds(in, rank);
    memset(in, 0, BLOCK);
    OK(MPI_File_iread_at_all(file, at(3), in, BLOCK, MPI_CHAR, &request));
    wait_for(BLOCK);
    holds(in, rank);
    OK(MPI_File_read_at_all_begin(file, at(4), in, BLOCK, MPI_CHAR));
    READ_BACK(rank, MPI_File_read_at_all_end(file, in, &status) ||
                        MPI_File_read_at(file, at(4), in, BLOCK, MPI_CHAR, MPI_STATUS_IGNORE));
    OK(MPI_File_seek(file, at(5), MPI_SEEK_SET));
    READ_BACK(rank, MPI_File_read(file, in, BLOCK, MPI_CHAR, &status));
    OK(MPI_File_seek(file, at(6), MPI_SEEK_SET));
    READ_BACK(rank, MPI_File_read_all(file, in, BLOCK, MPI_CHAR, &status));
    OK(MPI_File_seek(file, at(7), MPI_SEEK_SET));
    OK(MPI_File_iread(file, in, BLOCK, MPI_CHAR, &request));
    wait_for(BLOCK);
    holds(in, rank);
    OK(MPI_File_seek(file, at(8), MPI_SEEK_SET));
    OK(MPI_File_iread_all(file, in, BLOCK, MPI_CHAR, &request));
    wait_for(BLOCK);
    OK(MPI_File_seek(file, at(9), MPI_SEEK_SET));
    OK(MPI_File_read_all_begin(file, in, BLOCK, MPI_CHAR));
    OK(MPI_File_read_all_end(file, in, &status));
    CHECK(bytes_of(&status) == BLOCK);
    holds(in, rank);
    OK(MPI_File_seek_shared(file, (MPI_Offset)10 * ranks * BLOCK, MPI_SEEK_SET));
    READ_BACK(rank, MPI_File_read_ordered(file, in, BLOCK, MPI_CHAR, &status));
    OK(MPI_File_read_ordered_begin(file, in, BLOCK, MPI_CHAR));
    OK(MPI_File_read_ordered_end(file, in, &status));
    holds(in, rank);
    /* At the end of the file, half of the last block of the file. */
    OK(MPI_File_read_at(file, ((MPI_Offset)CALLS * ranks) * BLOCK - BLOCK / 2, in, BLOCK, MPI_CHAR, &status));
    CHECK(bytes_of(&status) == BLOCK / 2);
    OK(MPI_File_read_at_all(file, (MPI_Offset)CALLS * ranks * BLOCK, in, BLOCK, MPI_CHAR, &status));
    CHECK(bytes_of(&status) == 0);
}

/* The shared pointer without order: nothing lost, nothing twice. */
static void shared(MPI_File file)
{
    enum { EACH = 20 };
    int seen[64] = {0}, sum[64];
    MPI_Offset position;

    OK(MPI_File_set_size(file, 0));
    OK(MPI_File_seek_shared(file, 0, MPI_SEEK_SET));
    for (int i = 0; i < EACH; i++) {
        if (i % 2) {
            OK(MPI_File_iwrite_shared(file, out, BLOCK, MPI_CHAR, &request));
            wait_for(BLOCK);
        } else {
            OK(MPI_File_write_shared(file, out, BLOCK, MPI_CHAR, &status));
            CHECK(bytes_of(&status) == BLOCK);
        }
    }
    MPI_Barrier(MPI_COMM_WORLD);
    OK(MPI_File_get_position_shared(file, &position));
    CHECK(position == (MPI_Offset)EACH * ranks * BLOCK);
    OK(MPI_File_seek_shared(file, -position, MPI_SEEK_END));
    for (int i = 0; i < EACH; i++) {
        if (i % 2) {
            OK(MPI_File_iread_shared(file, in, BLOCK, MPI_CHAR, &request));
            wait_for(BLOCK);
        } else {
            OK(MPI_File_read_shared(file, in, BLOCK, MPI_CHAR, &status));
            CHECK(bytes_of(&status) == BLOCK);
        }
        holds(in, in[0] - 'a');
        seen[in[0] - 'a']++;
    }
    MPI_Allreduce(seen, sum, ranks, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < ranks; i++)
        CHECK(sum[i] == EACH);
    OK(MPI_File_seek_shared(file, 0, MPI_SEEK_SET));
}

static void large_counts(MPI_File file)
{
#if MPI_VERSION >= 4
    MPI_Count extent;
    OK(MPI_File_write_at_c(file, at(0), out, BLOCK, MPI_CHAR, &status));
    OK(MPI_File_read_at_all_c(file, at(0), in, BLOCK, MPI_CHAR, &status));
    holds(in, rank);
    OK(MPI_File_seek(file, at(1), MPI_SEEK_SET));
    OK(MPI_File_iwrite_all_c(file, out, BLOCK, MPI_CHAR, &request));
    wait_for(BLOCK);
    OK(MPI_File_write_at_all_begin_c(file, at(2), out, BLOCK, MPI_CHAR));
    OK(MPI_File_write_at_all_end(file, out, &status));
    CHECK(bytes_of(&status) == BLOCK);
    OK(MPI_File_get_type_extent_c(file, MPI_DOUBLE, &extent));
    CHECK(extent == 8);
#else
    (void)file;
#endif
}

static void positions(MPI_File file)
{
    MPI_Offset size, position;
    MPI_Aint extent;

    OK(MPI_File_set_size(file, 12345));
    OK(MPI_File_get_size(file, &size));
    CHECK(size == 12345);
    OK(MPI_File_preallocate(file, 100));
    OK(MPI_File_get_size(file, &size));
    CHECK(size == 12345);
    OK(MPI_File_preallocate(file, 20000));
    OK(MPI_File_get_size(file, &size));
    CHECK(size == 20000);
    OK(MPI_File_seek(file, -5, MPI_SEEK_END));
    OK(MPI_File_get_position(file, &position));
    CHECK(position == 19995);
    OK(MPI_File_seek(file, 2, MPI_SEEK_CUR));
    OK(MPI_File_get_byte_offset(file, 7, &position));
    CHECK(position == 7);
    OK(MPI_File_get_position(file, &position));
    CHECK(position == 19997);
    OK(MPI_File_read(file, in, BLOCK, MPI_CHAR, &status));
    CHECK(bytes_of(&status) == 3);
    OK(MPI_File_get_position(file, &position));
    CHECK(position == 20000);
    OK(MPI_File_get_type_extent(file, MPI_INT, &extent));
    CHECK(extent == 4);
    OK(MPI_File_sync(file));
}

int main(int argc, char **argv)
{
    const char *path = begin(argc, argv);
    MPI_File file;

    memset(out, 'a' + rank, BLOCK);
    OK(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file));
    positions(file);
    shared(file);
    large_counts(file);
    OK(MPI_File_set_size(file, 0));
    OK(MPI_File_seek_shared(file, 0, MPI_SEEK_SET));
    writes(file);
    MPI_Barrier(MPI_COMM_WORLD);
    reads(file);
    OK(MPI_File_close(&file));
    CHECK(file == MPI_FILE_NULL);
    return end();
}
