/*
 * pnetcdf_shared: ranks write one file with PnetCDF, which knows nothing of ccPFS: columns and strided rows, together and alone, blocking and not; and
 * read all of it. Argument: a file. Rank 0 prints "all right".
 */
#include "mpiio_check.h"

#include <pnetcdf.h>

enum { ROWS = 60, WIDTH = 50, RECORDS = 3 };

#define NC(call)                                                                                                    \
    do {                                                                                                            \
        int code_ = (call);                                                                                         \
        if (code_ != NC_NOERR) {                                                                                    \
            fprintf(stderr, "rank %d: line %d: %s: %s\n", rank, __LINE__, #call, ncmpi_strerror(code_));            \
            MPI_Abort(MPI_COMM_WORLD, 1);                                                                           \
        }                                                                                                           \
    } while (0)

static int value(int row, int column)
{
    return row * 1000 + column;
}

static void writes(const char *path)
{
    int file, dimensions[3], columns, strided, records, requests[RECORDS], states[RECORDS];
    static int numbers[ROWS * WIDTH];
    static double reals[RECORDS][WIDTH];

    NC(ncmpi_create(MPI_COMM_WORLD, path, NC_CLOBBER | NC_64BIT_DATA, MPI_INFO_NULL, &file));
    NC(ncmpi_def_dim(file, "record", NC_UNLIMITED, &dimensions[0]));
    NC(ncmpi_def_dim(file, "row", ROWS, &dimensions[1]));
    NC(ncmpi_def_dim(file, "column", (MPI_Offset)WIDTH * ranks, &dimensions[2]));
    NC(ncmpi_def_var(file, "columns", NC_INT, 2, &dimensions[1], &columns));
    NC(ncmpi_def_var(file, "strided", NC_INT, 2, &dimensions[1], &strided));
    int of_record[] = {dimensions[0], dimensions[2]};
    NC(ncmpi_def_var(file, "records", NC_DOUBLE, 2, of_record, &records));
    NC(ncmpi_put_att_text(file, columns, "unit", 5, "piece"));
    NC(ncmpi_enddef(file));
    MPI_Offset start[] = {0, (MPI_Offset)rank * WIDTH}, count[] = {ROWS, WIDTH};
    for (int i = 0; i < ROWS * WIDTH; i++)
        numbers[i] = value(i / WIDTH, rank * WIDTH + i % WIDTH);
    NC(ncmpi_put_vara_int_all(file, columns, start, count, numbers));
    /* Every column whose number is this rank's modulo the number of ranks, without the others. */
    MPI_Offset from[] = {0, rank}, stride[] = {1, ranks};
    for (int i = 0; i < ROWS * WIDTH; i++)
        numbers[i] = value(i / WIDTH, rank + ranks * (i % WIDTH));
    NC(ncmpi_begin_indep_data(file));
    NC(ncmpi_put_vars_int(file, strided, from, count, stride, numbers));
    NC(ncmpi_end_indep_data(file));
    for (int record = 0; record < RECORDS; record++) {
        MPI_Offset at[] = {record, (MPI_Offset)rank * WIDTH}, one[] = {1, WIDTH};
        for (int i = 0; i < WIDTH; i++)
            reals[record][i] = value(record, rank * WIDTH + i) + 0.5;
        NC(ncmpi_iput_vara_double(file, records, at, one, reals[record], &requests[record]));
    }
    NC(ncmpi_wait_all(file, RECORDS, requests, states));
    NC(ncmpi_close(file));
}

static void reads(const char *path)
{
    int file, columns, strided, records;
    int all = ROWS * WIDTH * ranks;
    int *numbers = malloc((size_t)all * sizeof *numbers);
    double *reals = malloc((size_t)(RECORDS * WIDTH * ranks) * sizeof *reals);

    NC(ncmpi_open(MPI_COMM_WORLD, path, NC_NOWRITE, MPI_INFO_NULL, &file));
    NC(ncmpi_inq_varid(file, "columns", &columns));
    NC(ncmpi_inq_varid(file, "strided", &strided));
    NC(ncmpi_inq_varid(file, "records", &records));
    for (int pass = 0; pass < 2; pass++) {
        NC(ncmpi_get_var_int_all(file, pass ? strided : columns, numbers));
        for (int i = 0; i < all; i++)
            CHECK(numbers[i] == value(i / (WIDTH * ranks), i % (WIDTH * ranks)));
    }
    NC(ncmpi_get_var_double_all(file, records, reals));
    for (int i = 0; i < RECORDS * WIDTH * ranks; i++)
        CHECK(reals[i] == value(i / (WIDTH * ranks), i % (WIDTH * ranks)) + 0.5);
    NC(ncmpi_close(file));
    free(numbers);
    free(reals);
}

int main(int argc, char **argv)
{
    const char *path = begin(argc, argv);

    writes(path);
    reads(path);
    return end();
}
