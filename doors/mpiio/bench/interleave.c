/*
 * interleave: what collective writes and reads cost when the ranks' pieces alternate. Arguments: a file, bytes of a piece, MiB for each rank,
 * collective calls. Prints MiB/s of all ranks for each way: exchanged first, each rank by itself, and each by itself in atomic mode; of rounds that take
 * turns.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 5 };

static int by_value(const void *a, const void *b)
{
    double one = *(const double *)a, other = *(const double *)b;
    return one < other ? -1 : one > other;
}

int main(int argc, char **argv)
{
    static const char *const HOW[] = {"enable", "disable", "disable"};
    enum { WAYS = 3, ATOMIC = 2 };
    double rates[WAYS][2][ROUNDS];
    int rank, ranks;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc != 5)
        MPI_Abort(MPI_COMM_WORLD, 1);
    int piece = atoi(argv[2]), calls = atoi(argv[4]);
    int pieces = (int)((long)atoi(argv[3]) * (1 << 20) / piece / calls);
    int bytes = pieces * piece;
    char *buffer = malloc((size_t)bytes);
    memset(buffer, 'a' + rank, (size_t)bytes);
    MPI_Datatype type;
    MPI_Type_vector(pieces, piece, piece * ranks, MPI_CHAR, &type);
    MPI_Datatype tile;
    MPI_Type_create_resized(type, 0, (MPI_Aint)pieces * piece * ranks, &tile);
    MPI_Type_commit(&tile);
    for (int round = 0; round < ROUNDS; round++) {
        for (int how = 0; how < WAYS; how++) {
            MPI_File file;
            MPI_Info info;
            MPI_Info_create(&info);
            MPI_Info_set(info, "romio_cb_write", HOW[how]);
            MPI_Info_set(info, "romio_cb_read", HOW[how]);
            if (MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE, info, &file))
                MPI_Abort(MPI_COMM_WORLD, 2);
            MPI_Info_free(&info);
            MPI_File_set_view(file, (MPI_Offset)rank * piece, MPI_CHAR, tile, "native", MPI_INFO_NULL);
            if (how == ATOMIC && MPI_File_set_atomicity(file, 1))
                MPI_Abort(MPI_COMM_WORLD, 4);
            for (int is_read = 0; is_read < 2; is_read++) {
                MPI_Barrier(MPI_COMM_WORLD);
                double begun = MPI_Wtime();
                for (int call = 0; call < calls; call++) {
                    MPI_Offset at = (MPI_Offset)call * bytes;
                    int code = is_read ? MPI_File_read_at_all(file, at, buffer, bytes, MPI_CHAR, MPI_STATUS_IGNORE)
                                       : MPI_File_write_at_all(file, at, buffer, bytes, MPI_CHAR, MPI_STATUS_IGNORE);
                    if (code)
                        MPI_Abort(MPI_COMM_WORLD, 3);
                }
                MPI_Barrier(MPI_COMM_WORLD);
                rates[how][is_read][round] = (double)bytes * calls * ranks / (1 << 20) / (MPI_Wtime() - begun);
            }
            MPI_File_close(&file);
        }
    }
    if (rank == 0)
        for (int is_read = 0; is_read < 2; is_read++) {
            for (int how = 0; how < WAYS; how++)
                qsort(rates[how][is_read], ROUNDS, sizeof(double), by_value);
            printf("%s piece %7d x %6d, %3d calls: exchanged %8.1f, by itself %8.1f, atomic %8.1f MiB/s\n", is_read ? "read " : "write", piece, pieces,
                   calls, rates[0][is_read][ROUNDS / 2], rates[1][is_read][ROUNDS / 2], rates[ATOMIC][is_read][ROUNDS / 2]);
        }
    MPI_Type_free(&type);
    MPI_Type_free(&tile);
    free(buffer);
    MPI_Finalize();
    return 0;
}
