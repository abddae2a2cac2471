/*
 * mpiio_atomic: in atomic mode, ranks write overlapping noncontiguous accesses, and others read them: every access is seen whole or not at all.
 * Arguments: a file, rounds, and optionally a round in which rank 0 is killed after its write.
 */
#include "mpiio_check.h"

#include <signal.h>

enum { BLOCKS = 24, BLOCK = 6000, BYTES = BLOCKS * BLOCK };

static char out[BYTES], in[BYTES];

/* Blocks that lie apart by `stride`, from `start` on. */
static void set_view(MPI_File file, int start, int stride)
{
    MPI_Datatype type;
    OK(MPI_Type_vector(BLOCKS, BLOCK, stride, MPI_CHAR, &type));
    OK(MPI_Type_commit(&type));
    OK(MPI_File_set_view(file, start, MPI_CHAR, type, "native", MPI_INFO_NULL));
    OK(MPI_Type_free(&type));
}

/* All ranks write and read the same blocks. */
static void same_blocks(MPI_File file, int rounds, int last)
{
    set_view(file, 11, 2 * BLOCK + 5);
    for (int round = 0; round < rounds; round++) {
        if (rank % 2 == 0) {
            memset(out, 'a' + (rank * 7 + round) % 20, BYTES);
            OK(round % 2 ? MPI_File_write_at_all(file, 0, out, BYTES, MPI_CHAR, MPI_STATUS_IGNORE)
                         : MPI_File_write_at(file, 0, out, BYTES, MPI_CHAR, MPI_STATUS_IGNORE));
            if (rank == 0 && round == last)
                raise(SIGKILL);
        } else if (round % 2) {
            OK(MPI_File_write_at_all(file, 0, out, 0, MPI_CHAR, MPI_STATUS_IGNORE));
        }
        OK(MPI_File_read_at(file, 0, in, BYTES, MPI_CHAR, MPI_STATUS_IGNORE));
        for (int i = 1; i < BYTES; i++)
            CHECK(in[i] == in[0]);
    }
}

/* Writes of different strides that overlap in part: who wins one common block wins all that the two have in common. */
static void crossing_blocks(MPI_File file, int rounds)
{
    enum { NARROW = BLOCK, WIDE = 3 * BLOCK };
    static char whole[BLOCKS * WIDE];
    MPI_Status status;

    for (int round = 0; round < rounds; round++) {
        OK(MPI_File_set_atomicity(file, 0));
        OK(MPI_File_set_view(file, 0, MPI_CHAR, MPI_CHAR, "native", MPI_INFO_NULL));
        OK(MPI_File_set_size(file, 0));
        OK(MPI_File_set_atomicity(file, 1));
        set_view(file, 0, rank % 2 ? 2 * NARROW : WIDE);
        memset(out, 'a' + rank, BYTES);
        OK(MPI_File_write(file, out, BYTES, MPI_CHAR, MPI_STATUS_IGNORE));
        MPI_Barrier(MPI_COMM_WORLD);
        OK(MPI_File_set_view(file, 0, MPI_CHAR, MPI_CHAR, "native", MPI_INFO_NULL));
        OK(MPI_File_read_at(file, 0, whole, sizeof whole, MPI_CHAR, &status));
        /* Multiples of both strides: one rank of the even ones, or of the odd ones, has them all. */
        char winner = 0, even = 0, odd = 0;
        for (int at = 0; at < bytes_of(&status); at++) {
            int is_even = ranks > 0 && at % WIDE < BLOCK, is_odd = ranks > 1 && at % (2 * NARROW) < BLOCK && at < 2 * BYTES;
            char *seen = is_even && is_odd ? &winner : is_even ? &even : is_odd ? &odd : NULL;
            if (!seen) {
                CHECK(whole[at] == 0);
                continue;
            }
            if (!*seen)
                *seen = whole[at];
            CHECK(*seen == whole[at]);
        }
        CHECK(winner == even || winner == odd);
        MPI_Barrier(MPI_COMM_WORLD);
    }
}

int main(int argc, char **argv)
{
    const char *path = begin(argc, argv);
    MPI_File file;
    int flag;

    CHECK(argc == 3 || argc == 4);
    OK(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file));
    OK(MPI_File_get_atomicity(file, &flag));
    CHECK(!flag);
    OK(MPI_File_set_atomicity(file, 1));
    OK(MPI_File_get_atomicity(file, &flag));
    CHECK(flag);
    memset(out, 'z', BYTES);
    set_view(file, 11, 2 * BLOCK + 5);
    OK(MPI_File_write_at(file, 0, out, BYTES, MPI_CHAR, MPI_STATUS_IGNORE));
    MPI_Barrier(MPI_COMM_WORLD);
    same_blocks(file, atoi(argv[2]), argc == 4 ? atoi(argv[3]) : -1);
    crossing_blocks(file, atoi(argv[2]));
    OK(MPI_File_close(&file));
    return end();
}
