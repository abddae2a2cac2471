/*
 * mpiio_locks: the same collective writes and reads under every hint about locks; the bytes must be right whatever it says. Argument: a file.
 */
#include "mpiio_check.h"

enum { PIECE = 3000, PIECES = 40, CALLS = 6, BYTES = PIECE * PIECES };

static char out[BYTES], in[BYTES];

static void fill(int call, int owner)
{
    for (int i = 0; i < BYTES; i++)
        out[i] = (char)(i * 5 + call * 17 + owner * 29 + 1);
}

static void one(const char *path, const char *key, const char *value)
{
    MPI_File file;
    MPI_Info info;
    MPI_Datatype vector, tile;
    MPI_Status status;

    MPI_Info_create(&info);
    if (key)
        MPI_Info_set(info, key, value);
    OK(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR, info, &file));
    MPI_Info_free(&info);
    OK(MPI_File_set_size(file, 0));
    OK(MPI_Type_vector(PIECES, PIECE, PIECE * ranks, MPI_CHAR, &vector));
    OK(MPI_Type_create_resized(vector, 0, (MPI_Aint)BYTES * ranks, &tile));
    OK(MPI_Type_commit(&tile));
    OK(MPI_File_set_view(file, (MPI_Offset)rank * PIECE, MPI_CHAR, tile, "native", MPI_INFO_NULL));
    for (int call = 0; call < CALLS; call++) {
        fill(call, rank);
        OK(MPI_File_write_all(file, out, BYTES, MPI_CHAR, &status));
        CHECK(bytes_of(&status) == BYTES);
    }
    OK(MPI_File_sync(file));
    MPI_Barrier(MPI_COMM_WORLD);
    OK(MPI_File_sync(file));
    /* What the next rank has written. */
    int next = (rank + 1) % ranks;
    OK(MPI_File_set_view(file, (MPI_Offset)next * PIECE, MPI_CHAR, tile, "native", MPI_INFO_NULL));
    for (int call = 0; call < CALLS; call++) {
        fill(call, next);
        OK(MPI_File_read_at_all(file, (MPI_Offset)call * BYTES, in, BYTES, MPI_CHAR, &status));
        CHECK(bytes_of(&status) == BYTES && !memcmp(in, out, BYTES));
    }
    /* Atomic accesses work whatever the locks are. */
    OK(MPI_File_set_atomicity(file, 1));
    fill(0, next + 50);
    OK(MPI_File_write_at_all(file, 0, out, BYTES, MPI_CHAR, &status));
    OK(MPI_File_read_at(file, 0, in, BYTES, MPI_CHAR, &status));
    CHECK(!memcmp(in, out, BYTES));
    OK(MPI_File_set_atomicity(file, 0));
    MPI_Type_free(&vector);
    MPI_Type_free(&tile);
    OK(MPI_File_close(&file));
    /* Nothing is left of group locks: others may use the file. */
    OK(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_RDONLY, MPI_INFO_NULL, &file));
    MPI_Offset size;
    OK(MPI_File_get_size(file, &size));
    CHECK(size == (MPI_Offset)BYTES * CALLS * ranks);
    OK(MPI_File_close(&file));
}

/* Members of a group: a rank reads what it has written itself, in small pieces, and opens the file once more alone. */
static void in_a_group(const char *path)
{
    enum { SMALL = 64, SMALL_BYTES = 6400 };
    MPI_File file, alone;
    MPI_Info info;
    MPI_Datatype tile;
    char words[MPI_MAX_INFO_VAL + 1];
    int flag;

    MPI_Info_create(&info);
    MPI_Info_set(info, "cray_cb_write_lock_mode", "1");
    OK(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR, info, &file));
    OK(MPI_Type_vector(SMALL_BYTES / SMALL, SMALL, SMALL * ranks, MPI_CHAR, &tile));
    OK(MPI_Type_commit(&tile));
    OK(MPI_File_set_view(file, (MPI_Offset)rank * SMALL, MPI_CHAR, tile, "native", MPI_INFO_NULL));
    fill(3, rank);
    OK(MPI_File_write_at_all(file, 0, out, SMALL_BYTES, MPI_CHAR, MPI_STATUS_IGNORE));
    OK(MPI_File_read_at(file, 0, in, SMALL_BYTES, MPI_CHAR, MPI_STATUS_IGNORE));
    CHECK(!memcmp(in, out, SMALL_BYTES));
    memset(in, 0, sizeof in);
    OK(MPI_File_read_at_all(file, 0, in, SMALL_BYTES, MPI_CHAR, MPI_STATUS_IGNORE));
    CHECK(!memcmp(in, out, SMALL_BYTES));
    OK(MPI_File_open(MPI_COMM_SELF, path, MPI_MODE_RDWR, info, &alone));
    OK(MPI_File_get_info(alone, &info));
    MPI_Info_get(info, "romio_visibility_immediate", MPI_MAX_INFO_VAL, words, &flag);
    CHECK(flag && !strcmp(words, "true"));
    MPI_Info_free(&info);
    OK(MPI_File_close(&alone));
    MPI_Type_free(&tile);
    OK(MPI_File_close(&file));
}

/* The environment of one rank says other than that of the others: what rank 0 says counts, and none waits for ever. */
static void of_two_minds(const char *path)
{
    for (int odd = 0; odd < 2; odd++) {
        if (rank == odd)
            setenv("CCPFS_MPIIO_HINTS", "*:collective_buffering=false", 1);
        one(path, "romio_cb_write", "enable");
        unsetenv("CCPFS_MPIIO_HINTS");
    }
}

int main(int argc, char **argv)
{
    const char *path = begin(argc, argv);

    one(path, NULL, NULL);
    one(path, "romio_lustre_cb_lock_ahead_write", "1");
    one(path, "cray_cb_write_lock_mode", "1");
    one(path, "cray_cb_write_lock_mode", "2");
    one(path, "ccpfs_lock_kind", "list");
    one(path, "ccpfs_lock_kind", "posix");
    one(path, "ccpfs_lock_protocol", "two-phase");
    one(path, "ccpfs_lock_protocol", "one-try");
    one(path, "ccpfs_lock_kind", "of_no_meaning");
    in_a_group(path);
    of_two_minds(path);
    return end();
}
