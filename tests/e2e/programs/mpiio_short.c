/*
 * mpiio_short: writes that the library below cuts short (mpiio_short_writes.c). Arguments: a file, and "once" or "full".
 */
#include "mpiio_check.h"

enum { PIECE = 100, BYTES = 4000 };

int main(int argc, char **argv)
{
    const char *path = begin(argc, argv);
    char out[BYTES], in[BYTES];
    MPI_File file;
    MPI_Datatype tile;
    MPI_Status status;

    CHECK(argc == 3);
    int is_full = !strcmp(argv[2], "full");
    OK(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file));
    OK(MPI_Type_vector(BYTES / PIECE, PIECE, PIECE * ranks, MPI_CHAR, &tile));
    OK(MPI_Type_commit(&tile));
    OK(MPI_File_set_view(file, (MPI_Offset)rank * PIECE, MPI_CHAR, tile, "native", MPI_INFO_NULL));
    /* Each by itself, then by way of aggregators. */
    for (int is_together = 0; is_together < 2; is_together++) {
        for (int i = 0; i < BYTES; i++)
            out[i] = (char)(i * 7 + rank + is_together);
        int code = is_together ? MPI_File_write_at_all(file, 0, out, BYTES, MPI_CHAR, &status)
                               : MPI_File_write_at(file, 0, out, BYTES, MPI_CHAR, &status);
        MPI_Barrier(MPI_COMM_WORLD);
        if (is_full) {
            FAILS(MPI_ERR_NO_SPACE, code);
            continue;
        }
        OK(code);
        CHECK(bytes_of(&status) == BYTES);
        OK(MPI_File_read_at(file, 0, in, BYTES, MPI_CHAR, &status));
        CHECK(bytes_of(&status) == BYTES && !memcmp(in, out, BYTES));
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Type_free(&tile);
    OK(MPI_File_close(&file));
    return end();
}
