/*
 * mpiio_check.h: what the MPI-IO programs share. Each is run as `program FILE`, and rank 0 prints "all right".
 */
#ifndef MPIIO_CHECK_H
#define MPIIO_CHECK_H

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, ranks;

#define CHECK(condition)                                                                                            \
    do {                                                                                                            \
        if (!(condition)) {                                                                                         \
            fprintf(stderr, "rank %d: %s:%d: %s\n", rank, __FILE__, __LINE__, #condition);                          \
            MPI_Abort(MPI_COMM_WORLD, 1);                                                                           \
        }                                                                                                           \
    } while (0)

/* The call must succeed. */
#define OK(call)                                                                                                    \
    do {                                                                                                            \
        int code_ = (call);                                                                                         \
        if (code_ != MPI_SUCCESS) {                                                                                 \
            char words_[MPI_MAX_ERROR_STRING];                                                                      \
            int length_;                                                                                            \
            MPI_Error_string(code_, words_, &length_);                                                              \
            fprintf(stderr, "rank %d: %s:%d: %s: %s\n", rank, __FILE__, __LINE__, #call, words_);                   \
            MPI_Abort(MPI_COMM_WORLD, 1);                                                                           \
        }                                                                                                           \
    } while (0)

/* The call must fail with an error of this class. */
#define FAILS(class, call)                                                                                          \
    do {                                                                                                            \
        int class_ = -1;                                                                                            \
        MPI_Error_class((call), &class_);                                                                           \
        if (class_ != (class)) {                                                                                    \
            fprintf(stderr, "rank %d: %s:%d: %s: class %d instead of " #class "\n", rank, __FILE__, __LINE__, #call, class_); \
            MPI_Abort(MPI_COMM_WORLD, 1);                                                                           \
        }                                                                                                           \
    } while (0)

static inline const char *begin(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    CHECK(argc >= 2);
    return argv[1];
}

static inline int end(void)
{
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        puts("all right");
    MPI_Finalize();
    return 0;
}

/* Bytes in a status. */
static inline int bytes_of(MPI_Status *status)
{
    int bytes = -1;
    MPI_Get_count(status, MPI_BYTE, &bytes);
    return bytes;
}

#endif
