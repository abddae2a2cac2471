/*
 * mpi_atomic: ranks write and read the same noncontiguous region in MPI's atomic mode, which ROMIO builds on record locks;
 * and once without waiting, which it builds on asynchronous calls. Argument: a file. Rank 0 prints "all right".
 */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

#define CHECK(condition)                                                                                            \
    do {                                                                                                            \
        if (!(condition)) {                                                                                         \
            fprintf(stderr, "rank %d: line %d: %s\n", rank, __LINE__, #condition);                                  \
            MPI_Abort(MPI_COMM_WORLD, 1);                                                                           \
        }                                                                                                           \
    } while (0)

enum { BLOCKS = 50, BLOCK = 100, BYTES = BLOCKS * BLOCK, ROUNDS = 20 };

int main(int argc, char **argv)
{
    int rank;
    MPI_File file;
    MPI_Datatype every_second;
    MPI_Request request;
    char out[BYTES], in[BYTES];

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    CHECK(argc == 2);
    CHECK(!MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file));
    CHECK(!MPI_File_set_size(file, 0) && !MPI_File_set_atomicity(file, 1));
    MPI_Type_vector(BLOCKS, BLOCK, 2 * BLOCK, MPI_CHAR, &every_second);
    MPI_Type_commit(&every_second);
    CHECK(!MPI_File_set_view(file, 0, MPI_CHAR, every_second, "native", MPI_INFO_NULL));
    memset(out, 'a' + rank, sizeof out);
    for (int round = 0; round < ROUNDS; round++) {
        CHECK(!MPI_File_write_at(file, 0, out, BYTES, MPI_CHAR, MPI_STATUS_IGNORE));
        CHECK(!MPI_File_read_at(file, 0, in, BYTES, MPI_CHAR, MPI_STATUS_IGNORE));
        for (int i = 1; i < BYTES; i++)
            CHECK(in[i] == in[0]); /* One rank's bytes, never a mixture. */
    }
    CHECK(!MPI_File_set_atomicity(file, 0));
    CHECK(!MPI_File_set_view(file, 0, MPI_CHAR, MPI_CHAR, "native", MPI_INFO_NULL));
    MPI_Offset own = (MPI_Offset)(rank + 4) * BYTES;
    CHECK(!MPI_File_iwrite_at(file, own, out, BYTES, MPI_CHAR, &request));
    CHECK(!MPI_Wait(&request, MPI_STATUS_IGNORE));
    CHECK(!MPI_File_iread_at(file, own, in, BYTES, MPI_CHAR, &request));
    CHECK(!MPI_Wait(&request, MPI_STATUS_IGNORE) && !memcmp(in, out, BYTES));
    MPI_Type_free(&every_second);
    CHECK(!MPI_File_close(&file));
    if (rank == 0)
        puts("all right");
    MPI_Finalize();
    return 0;
}
