/*
 * mpiio_corners: nothing to do, places far out, types of odd extents, parts of the ranks, threads, many requests at once, representations. Argument: a file.
 */
#include "mpiio_check.h"

#include <pthread.h>

static MPI_File opened(const char *path, MPI_Comm comm, int amode)
{
    MPI_File file;
    OK(MPI_File_open(comm, path, amode, MPI_INFO_NULL, &file));
    return file;
}

/* Counts of zero, types of no bytes, and ranks that take no part. */
static void nothing(const char *path)
{
    MPI_File file = opened(path, MPI_COMM_WORLD, MPI_MODE_CREATE | MPI_MODE_RDWR);
    MPI_Status status;
    MPI_Datatype empty, part;
    MPI_Offset size, position;
    MPI_Request request;
    char bytes[8] = "abcdefg", got[8] = "";
    int none = 0, start = 0;

    OK(MPI_File_set_size(file, 0));
    OK(MPI_File_write_at_all(file, 100, NULL, 0, MPI_INT, &status));
    CHECK(bytes_of(&status) == 0);
    OK(MPI_File_write_at(file, 100, bytes, 0, MPI_INT, &status));
    OK(MPI_File_iwrite_at(file, 100, bytes, 0, MPI_INT, &request));
    OK(MPI_Wait(&request, &status));
    CHECK(bytes_of(&status) == 0);
    OK(MPI_File_write_ordered(file, bytes, 0, MPI_CHAR, &status));
    OK(MPI_File_get_size(file, &size));
    CHECK(size == 0);
    OK(MPI_File_read_at_all(file, 0, got, 8, MPI_CHAR, &status));
    CHECK(bytes_of(&status) == 0 && got[0] == 0);
    OK(MPI_Type_indexed(1, &none, &start, MPI_CHAR, &empty));
    OK(MPI_Type_commit(&empty));
    OK(MPI_File_write_at_all(file, 0, bytes, 5, empty, &status));
    CHECK(bytes_of(&status) == 0);
    /* The last rank alone sees bytes of the file. */
    int length = rank == ranks - 1 ? 7 : 0, displacement = 3;
    OK(MPI_Type_indexed(1, &length, &displacement, MPI_CHAR, &part));
    OK(MPI_Type_commit(&part));
    OK(MPI_File_set_view(file, 0, MPI_CHAR, part, "native", MPI_INFO_NULL));
    OK(MPI_File_write_all(file, bytes, length, MPI_CHAR, &status));
    CHECK(bytes_of(&status) == length);
    OK(MPI_File_get_position(file, &position));
    CHECK(position == length);
    OK(MPI_File_read_at_all(file, 0, got, length, MPI_CHAR, &status));
    CHECK(!memcmp(got, bytes, (size_t)length));
    MPI_Barrier(MPI_COMM_WORLD);
    OK(MPI_File_get_size(file, &size));
    CHECK(size == 10);
    MPI_Type_free(&empty);
    MPI_Type_free(&part);
    OK(MPI_File_close(&file));
}

/* Terabytes out; pieces that lie gigabytes apart; extents larger than what a view selects, and a view that starts far out. */
static void far_out(const char *path)
{
    MPI_File file = opened(path, MPI_COMM_WORLD, MPI_MODE_CREATE | MPI_MODE_RDWR);
    const MPI_Offset tera = (MPI_Offset)1 << 40;
    MPI_Datatype sparse, wide;
    MPI_Aint places[] = {0, (MPI_Aint)5 << 30, (MPI_Aint)11 << 30};
    int lengths[] = {2, 1, 2}, numbers[10], got[10];
    MPI_Offset place, size;

    for (int i = 0; i < 10; i++)
        numbers[i] = 1000 * rank + i;
    OK(MPI_Type_create_hindexed(3, lengths, places, MPI_INT, &sparse));
    OK(MPI_Type_create_resized(sparse, 0, (MPI_Aint)16 << 30, &wide));
    OK(MPI_Type_commit(&wide));
    OK(MPI_File_set_view(file, tera + 8 * rank, MPI_INT, wide, "native", MPI_INFO_NULL));
    for (int atomic = 0; atomic < 2; atomic++) {
        OK(MPI_File_set_atomicity(file, atomic));
        OK(MPI_File_write_all(file, numbers, 5, MPI_INT, MPI_STATUS_IGNORE));
        OK(MPI_File_write(file, numbers + 5, 5, MPI_INT, MPI_STATUS_IGNORE));
        OK(MPI_File_seek(file, 0, MPI_SEEK_SET));
        OK(MPI_File_read_all(file, got, 10, MPI_INT, MPI_STATUS_IGNORE));
        CHECK(!memcmp(got, numbers, sizeof got));
        OK(MPI_File_seek(file, 0, MPI_SEEK_SET));
    }
    OK(MPI_File_get_byte_offset(file, 8, &place));
    CHECK(place == tera + 8 * rank + ((MPI_Offset)16 << 30) + ((MPI_Offset)11 << 30));
    MPI_Barrier(MPI_COMM_WORLD);
    OK(MPI_File_get_size(file, &size));
    CHECK(size == tera + 8 * (ranks - 1) + ((MPI_Offset)27 << 30) + 8);
    OK(MPI_File_seek(file, 0, MPI_SEEK_END));
    OK(MPI_File_get_position(file, &place));
    CHECK(place >= 9 && place <= 10 + 5);
    OK(MPI_File_set_view(file, 0, MPI_CHAR, MPI_CHAR, "native", MPI_INFO_NULL));
    OK(MPI_File_set_size(file, 0));
    MPI_Type_free(&sparse);
    MPI_Type_free(&wide);
    OK(MPI_File_close(&file));
}

/* A type whose first byte lies behind its extent: where the end of the file is in its view. */
static void far_lower_bound(const char *path)
{
    MPI_File file = opened(path, MPI_COMM_WORLD, MPI_MODE_CREATE | MPI_MODE_RDWR);
    int length = 4, place = 100;
    MPI_Datatype behind;
    MPI_Offset position;

    OK(MPI_Type_indexed(1, &length, &place, MPI_INT, &behind));
    OK(MPI_Type_commit(&behind));
    OK(MPI_File_set_view(file, 0, MPI_INT, behind, "native", MPI_INFO_NULL));
    for (int bytes = 416; bytes <= 432; bytes += 16) {
        OK(MPI_File_set_size(file, bytes));
        OK(MPI_File_seek(file, 0, MPI_SEEK_END));
        OK(MPI_File_get_position(file, &position));
        CHECK(position == (bytes - 400) / 4);
    }
    OK(MPI_File_set_size(file, 0));
    MPI_Type_free(&behind);
    OK(MPI_File_close(&file));
}

/* Ranks by halves and alone; many files at once. */
static void parts_of_the_ranks(const char *path)
{
    enum { FILES = 40 };
    MPI_Comm half;
    MPI_File files[FILES];
    char name[4096], letter = (char)('a' + rank), got;

    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
    snprintf(name, sizeof name, "%s.%d", path, rank % 2);
    MPI_File file = opened(name, half, MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE);
    OK(MPI_File_write_ordered(file, &letter, 1, MPI_CHAR, MPI_STATUS_IGNORE));
    OK(MPI_File_read_at_all(file, rank / 2, &got, 1, MPI_CHAR, MPI_STATUS_IGNORE));
    CHECK(got == letter);
    OK(MPI_File_close(&file));
    MPI_Comm_free(&half);
    for (int i = 0; i < FILES; i++) {
        snprintf(name, sizeof name, "%s.%d.%d", path, rank, i);
        files[i] = opened(name, MPI_COMM_SELF, MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE);
        OK(MPI_File_write_all(files[i], &letter, 1, MPI_CHAR, MPI_STATUS_IGNORE));
        CHECK(MPI_File_f2c(MPI_File_c2f(files[i])) == files[i]);
    }
    for (int i = 0; i < FILES; i++) {
        OK(MPI_File_read_at(files[i], 0, &got, 1, MPI_CHAR, MPI_STATUS_IGNORE));
        CHECK(got == letter);
        OK(MPI_File_close(&files[i]));
    }
}

struct job {
    MPI_File file;
    int number;
};

static void *job(void *argument)
{
    enum { PIECE = 777 };
    const struct job *job = argument;
    char out[PIECE], in[PIECE];

    memset(out, 'A' + job->number, sizeof out);
    for (int i = 0; i < 30; i++) {
        MPI_Offset at = ((MPI_Offset)(i * 4 + job->number) * ranks + rank) * PIECE;
        OK(MPI_File_write_at(job->file, at, out, PIECE, MPI_CHAR, MPI_STATUS_IGNORE));
        OK(MPI_File_read_at(job->file, at, in, PIECE, MPI_CHAR, MPI_STATUS_IGNORE));
        CHECK(!memcmp(in, out, PIECE));
    }
    return NULL;
}

static void threads(const char *path, int provided)
{
    pthread_t thread[4];
    struct job jobs[4];
    MPI_File file = opened(path, MPI_COMM_WORLD, MPI_MODE_CREATE | MPI_MODE_RDWR);

    for (int i = 0; i < 4; i++) {
        jobs[i] = (struct job){file, i};
        if (provided == MPI_THREAD_MULTIPLE)
            CHECK(pthread_create(&thread[i], NULL, job, &jobs[i]) == 0);
        else
            job(&jobs[i]);
    }
    for (int i = 0; i < 4 && provided == MPI_THREAD_MULTIPLE; i++)
        CHECK(pthread_join(thread[i], NULL) == 0);
    OK(MPI_File_close(&file));
}

/* Requests of files beside requests of messages; collective ones that ranks make in their own time. */
static void requests(const char *path)
{
    enum { COUNT = 20, PIECE = 500 };
    MPI_File file = opened(path, MPI_COMM_WORLD, MPI_MODE_CREATE | MPI_MODE_RDWR);
    MPI_Request some[COUNT + 2];
    MPI_Status statuses[COUNT + 2];
    static char out[COUNT][PIECE], in[COUNT][PIECE];
    int sent = rank, received = -1, next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks, flag = 0;

    for (int i = 0; i < COUNT; i++) {
        memset(out[i], 'a' + (rank + i) % 26, PIECE);
        MPI_Offset at = ((MPI_Offset)i * ranks + rank) * PIECE;
        OK(i % 2 ? MPI_File_iwrite_at(file, at, out[i], PIECE, MPI_CHAR, &some[i])
                 : MPI_File_iwrite_at_all(file, at, out[i], PIECE, MPI_CHAR, &some[i]));
        /* Rank by rank between two collective calls: none of them waits for the others. */
        if (i == 4 && rank > 0)
            OK(MPI_Recv(&received, 1, MPI_INT, rank - 1, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        if (i == 4 && rank < ranks - 1)
            OK(MPI_Send(&sent, 1, MPI_INT, rank + 1, 9, MPI_COMM_WORLD));
    }
    OK(MPI_Irecv(&received, 1, MPI_INT, before, 8, MPI_COMM_WORLD, &some[COUNT]));
    OK(MPI_Isend(&sent, 1, MPI_INT, next, 8, MPI_COMM_WORLD, &some[COUNT + 1]));
    OK(MPI_Waitall(COUNT + 2, some, statuses));
    CHECK(received == before);
    for (int i = 0; i < COUNT; i++) {
        CHECK(bytes_of(&statuses[i]) == PIECE);
        MPI_Test_cancelled(&statuses[i], &flag);
        CHECK(!flag);
        OK(MPI_File_iread_at(file, ((MPI_Offset)i * ranks + rank) * PIECE, in[i], PIECE, MPI_CHAR, &some[i]));
    }
    for (int left = COUNT; left > 0; left--) {
        int which;
        OK(MPI_Waitany(COUNT, some, &which, &statuses[0]));
        CHECK(which != MPI_UNDEFINED && bytes_of(&statuses[0]) == PIECE && !memcmp(in[which], out[which], PIECE));
    }
    OK(MPI_File_iread_at(file, 0, in[0], PIECE, MPI_CHAR, &some[0]));
    OK(MPI_Request_free(&some[0]));
    OK(MPI_File_close(&file));
}

static int extent_of_nothing(MPI_Datatype datatype, MPI_Aint *extent, void *state)
{
    MPI_Aint lower;
    (void)state;
    return MPI_Type_get_extent(datatype, &lower, extent);
}

static void representations(const char *path)
{
    MPI_File file = opened(path, MPI_COMM_WORLD, MPI_MODE_CREATE | MPI_MODE_RDWR);
    MPI_Datatype every_second;
    double numbers[8], got[8];
    short shorts[6] = {1, 2, 3, 4, 5, 6}, short_back[6];
    unsigned char bytes[8];
    MPI_Offset own = (MPI_Offset)rank * 64;

    for (int i = 0; i < 8; i++)
        numbers[i] = 0.25 * i + rank;
    OK(MPI_Type_vector(4, 1, 2, MPI_DOUBLE, &every_second));
    OK(MPI_Type_commit(&every_second));
    OK(MPI_File_set_size(file, 0));
    OK(MPI_File_set_view(file, own, MPI_DOUBLE, MPI_DOUBLE, "external32", MPI_INFO_NULL));
    OK(MPI_File_write_at_all(file, 0, numbers, 1, every_second, MPI_STATUS_IGNORE));
    memset(got, 0, sizeof got);
    OK(MPI_File_read_at_all(file, 0, got, 4, MPI_DOUBLE, MPI_STATUS_IGNORE));
    for (int i = 0; i < 4; i++)
        CHECK(got[i] == numbers[2 * i]);
    OK(MPI_File_set_view(file, own, MPI_SHORT, MPI_SHORT, "external32", MPI_INFO_NULL));
    OK(MPI_File_write_at(file, 0, shorts, 6, MPI_SHORT, MPI_STATUS_IGNORE));
    OK(MPI_File_read_at(file, 0, short_back, 6, MPI_SHORT, MPI_STATUS_IGNORE));
    CHECK(!memcmp(shorts, short_back, sizeof shorts));
    OK(MPI_File_set_view(file, own, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL));
    OK(MPI_File_read_at(file, 0, bytes, 4, MPI_BYTE, MPI_STATUS_IGNORE));
    CHECK(bytes[0] == 0 && bytes[1] == 1 && bytes[2] == 0 && bytes[3] == 2);
    /* The file ends within the one copy of the type. */
    MPI_Status status;
    MPI_Offset end = (MPI_Offset)(ranks - 1) * 64 + 16;
    OK(MPI_File_set_size(file, 0));
    OK(MPI_File_set_view(file, 0, MPI_DOUBLE, MPI_DOUBLE, "external32", MPI_INFO_NULL));
    OK(MPI_File_write_at(file, rank * 8, numbers, rank == ranks - 1 ? 2 : 8, MPI_DOUBLE, MPI_STATUS_IGNORE));
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < 8; i++)
        got[i] = -1;
    OK(MPI_File_read_at_all(file, end / 8 - 2, got, 1, every_second, &status));
    CHECK(bytes_of(&status) == 16);
    for (int i = 0; i < 8; i++)
        CHECK(got[i] == (i == 0 ? ranks - 1 : i == 2 ? 0.25 + ranks - 1 : -1));
    OK(MPI_File_set_view(file, own, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL));
    int code = MPI_Register_datarep("plain", MPI_CONVERSION_FN_NULL, MPI_CONVERSION_FN_NULL, extent_of_nothing, NULL);
    if (code == MPI_SUCCESS) {
        OK(MPI_File_set_view(file, own, MPI_DOUBLE, MPI_DOUBLE, "plain", MPI_INFO_NULL));
        OK(MPI_File_write_at(file, 0, numbers, 8, MPI_DOUBLE, MPI_STATUS_IGNORE));
        OK(MPI_File_read_at(file, 0, got, 8, MPI_DOUBLE, MPI_STATUS_IGNORE));
        CHECK(!memcmp(got, numbers, sizeof got));
    }
    MPI_Type_free(&every_second);
    OK(MPI_File_close(&file));
}

int main(int argc, char **argv)
{
    int provided;

    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    CHECK(argc == 2);
    const char *path = argv[1];
    nothing(path);
    far_out(path);
    far_lower_bound(path);
    parts_of_the_ranks(path);
    threads(path, provided);
    requests(path);
    representations(path);
    return end();
}
