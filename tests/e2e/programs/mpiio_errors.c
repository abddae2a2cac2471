/*
 * mpiio_errors: what must fail, how, and who is told; opening, closing, deleting, hints. Arguments: a file, and a file outside ccPFS.
 */
#include "mpiio_check.h"

#include <unistd.h>

static int handled, handled_code;
static MPI_File handled_file;

static void handler(MPI_File *file, int *code, ...)
{
    handled++;
    handled_code = *code;
    handled_file = *file;
}

static void modes(const char *path)
{
    MPI_File file;
    char byte = 'x';
    MPI_Status status;
    MPI_Request request;
    MPI_Offset size;

    if (rank == 0)
        MPI_File_delete(path, MPI_INFO_NULL);
    MPI_Barrier(MPI_COMM_WORLD);
    FAILS(MPI_ERR_NO_SUCH_FILE, MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_RDWR, MPI_INFO_NULL, &file));
    CHECK(file == MPI_FILE_NULL);
    FAILS(MPI_ERR_AMODE, MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_RDONLY | MPI_MODE_CREATE, MPI_INFO_NULL, &file));
    FAILS(MPI_ERR_AMODE, MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_RDWR | MPI_MODE_RDONLY, MPI_INFO_NULL, &file));
    FAILS(MPI_ERR_AMODE, MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE, MPI_INFO_NULL, &file));
    FAILS(MPI_ERR_AMODE, MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_RDWR | MPI_MODE_SEQUENTIAL, MPI_INFO_NULL, &file));
    FAILS(MPI_ERR_NO_SUCH_FILE, MPI_File_delete(path, MPI_INFO_NULL));
    OK(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_EXCL | MPI_MODE_WRONLY, MPI_INFO_NULL, &file));
    FAILS(MPI_ERR_ACCESS, MPI_File_read_at(file, 0, &byte, 1, MPI_CHAR, &status));
    OK(MPI_File_write_at(file, rank, &byte, 1, MPI_CHAR, &status));
    FAILS(MPI_ERR_ARG, MPI_File_write_at(file, -1, &byte, 1, MPI_CHAR, &status));
    FAILS(MPI_ERR_COUNT, MPI_File_write_at(file, 0, &byte, -1, MPI_CHAR, &status));
    /* Farther than offsets reach. */
    const MPI_Offset farthest = 0x7fffffffffffffff;
    OK(MPI_File_set_view(file, 8, MPI_INT, MPI_INT, "native", MPI_INFO_NULL));
    FAILS(MPI_ERR_ARG, MPI_File_write_at(file, farthest, &rank, 1, MPI_INT, &status));
    FAILS(MPI_ERR_ARG, MPI_File_write_at(file, farthest / 4 - 1, &rank, 1, MPI_INT, &status));
    FAILS(MPI_ERR_ARG, MPI_File_write_at_all(file, farthest / 2, &rank, 1, MPI_INT, &status));
    FAILS(MPI_ERR_ARG, MPI_File_get_byte_offset(file, farthest / 2, &size));
    OK(MPI_File_seek(file, farthest - 1, MPI_SEEK_SET));
    FAILS(MPI_ERR_ARG, MPI_File_seek(file, 2, MPI_SEEK_CUR));
    FAILS(MPI_ERR_ARG, MPI_File_write(file, &rank, 1, MPI_INT, &status));
    OK(MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL));
    FAILS(MPI_ERR_ARG, MPI_File_set_size(file, -1));
    FAILS(MPI_ERR_ARG, MPI_File_seek(file, -1, MPI_SEEK_SET));
    FAILS(MPI_ERR_ARG, MPI_File_set_view(file, -1, MPI_CHAR, MPI_CHAR, "native", MPI_INFO_NULL));
    FAILS(MPI_ERR_UNSUPPORTED_DATAREP, MPI_File_set_view(file, 0, MPI_CHAR, MPI_CHAR, "ebcdic", MPI_INFO_NULL));
    OK(MPI_File_close(&file));
    FAILS(MPI_ERR_FILE_EXISTS,
          MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_EXCL | MPI_MODE_RDWR, MPI_INFO_NULL, &file));
    OK(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_RDONLY, MPI_INFO_NULL, &file));
    FAILS(MPI_ERR_READ_ONLY, MPI_File_write_at(file, 0, &byte, 1, MPI_CHAR, &status));
    FAILS(MPI_ERR_READ_ONLY, MPI_File_iwrite_at(file, 0, &byte, 1, MPI_CHAR, &request));
    FAILS(MPI_ERR_READ_ONLY, MPI_File_set_size(file, 0));
    FAILS(MPI_ERR_READ_ONLY, MPI_File_write_all(file, &byte, 1, MPI_CHAR, &status));
    OK(MPI_File_get_size(file, &size));
    CHECK(size == ranks);
    OK(MPI_File_sync(file));
    OK(MPI_File_close(&file));
    OK(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_WRONLY | MPI_MODE_APPEND, MPI_INFO_NULL, &file));
    OK(MPI_File_get_position(file, &size));
    CHECK(size == ranks);
    OK(MPI_File_get_position_shared(file, &size));
    CHECK(size == ranks);
    OK(MPI_File_write_ordered(file, &byte, 1, MPI_CHAR, &status));
    OK(MPI_File_get_size(file, &size));
    MPI_Barrier(MPI_COMM_WORLD);
    OK(MPI_File_close(&file));
    CHECK(size > ranks && size <= 2 * ranks);
}

static void sequential(const char *path)
{
    MPI_File file;
    char byte = (char)('0' + rank), got;
    MPI_Status status;
    MPI_Offset offset;

    OK(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_WRONLY | MPI_MODE_SEQUENTIAL, MPI_INFO_NULL, &file));
    FAILS(MPI_ERR_UNSUPPORTED_OPERATION, MPI_File_write_at(file, 0, &byte, 1, MPI_CHAR, &status));
    FAILS(MPI_ERR_UNSUPPORTED_OPERATION, MPI_File_write(file, &byte, 1, MPI_CHAR, &status));
    FAILS(MPI_ERR_UNSUPPORTED_OPERATION, MPI_File_seek(file, 0, MPI_SEEK_SET));
    FAILS(MPI_ERR_UNSUPPORTED_OPERATION, MPI_File_get_position(file, &offset));
    FAILS(MPI_ERR_UNSUPPORTED_OPERATION, MPI_File_get_byte_offset(file, 0, &offset));
    FAILS(MPI_ERR_UNSUPPORTED_OPERATION, MPI_File_seek_shared(file, 0, MPI_SEEK_SET));
    FAILS(MPI_ERR_UNSUPPORTED_OPERATION, MPI_File_get_position_shared(file, &offset));
    OK(MPI_File_write_ordered(file, &byte, 1, MPI_CHAR, &status));
    OK(MPI_File_set_view(file, MPI_DISPLACEMENT_CURRENT, MPI_CHAR, MPI_CHAR, "native", MPI_INFO_NULL));
    OK(MPI_File_write_ordered(file, &byte, 1, MPI_CHAR, &status));
    OK(MPI_File_close(&file));
    OK(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_RDONLY | MPI_MODE_DELETE_ON_CLOSE, MPI_INFO_NULL, &file));
    for (int half = 0; half < 2; half++) {
        OK(MPI_File_read_at(file, half * ranks + rank, &got, 1, MPI_CHAR, &status));
        CHECK(got == byte);
    }
    OK(MPI_File_close(&file));
    FAILS(MPI_ERR_NO_SUCH_FILE, MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_RDONLY, MPI_INFO_NULL, &file));
}

static void mender(MPI_File *file, int *code, ...)
{
    (void)file;
    *code = MPI_SUCCESS;
}

static void handlers(const char *path)
{
    MPI_File file;
    MPI_Errhandler own, got;
    char byte;
    int seen;

    OK(MPI_File_get_errhandler(MPI_FILE_NULL, &got));
    CHECK(got == MPI_ERRORS_RETURN);
    OK(MPI_File_create_errhandler(handler, &own));
    OK(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file));
    OK(MPI_File_get_errhandler(file, &got));
    CHECK(got == MPI_ERRORS_RETURN);
    OK(MPI_File_set_errhandler(file, own));
    OK(MPI_Errhandler_free(&own));
    CHECK(own == MPI_ERRHANDLER_NULL);
    FAILS(MPI_ERR_ARG, MPI_File_read_at(file, -1, &byte, 1, MPI_CHAR, MPI_STATUS_IGNORE));
    CHECK(handled == 1 && handled_file == file && handled_code != MPI_SUCCESS);
    OK(MPI_File_call_errhandler(file, MPI_ERR_OTHER));
    CHECK(handled == 2 && handled_code == MPI_ERR_OTHER);
    OK(MPI_File_get_errhandler(file, &got));
    OK(MPI_File_set_errhandler(file, MPI_ERRORS_RETURN));
    FAILS(MPI_ERR_ARG, MPI_File_read_at(file, -1, &byte, 1, MPI_CHAR, MPI_STATUS_IGNORE));
    CHECK(handled == 2);
    /* A new file inherits the handler of MPI_FILE_NULL, and failing to open calls it. */
    OK(MPI_File_set_errhandler(MPI_FILE_NULL, got));
    OK(MPI_Errhandler_free(&got));
    OK(MPI_File_close(&file));
    FAILS(MPI_ERR_AMODE, MPI_File_open(MPI_COMM_WORLD, path, 0, MPI_INFO_NULL, &file));
    CHECK(handled == 3);
    OK(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_RDWR, MPI_INFO_NULL, &file));
    seen = handled;
    FAILS(MPI_ERR_ARG, MPI_File_read_at(file, -1, &byte, 1, MPI_CHAR, MPI_STATUS_IGNORE));
    CHECK(handled == seen + 1);
    /* What a handler makes of the code is the code. */
    OK(MPI_File_create_errhandler(mender, &own));
    OK(MPI_File_set_errhandler(file, own));
    OK(MPI_Errhandler_free(&own));
    OK(MPI_File_read_at(file, -1, &byte, 1, MPI_CHAR, MPI_STATUS_IGNORE));
    OK(MPI_File_set_errhandler(MPI_FILE_NULL, MPI_ERRORS_RETURN));
    OK(MPI_File_close(&file));
}

/* Each handle of a predefined handler that a file gives may be freed; Open MPI counts them, and misses what is freed once too often when it ends. */
static void predefined_handlers(const char *path)
{
    MPI_File file;
    MPI_Errhandler got, other;

    for (int i = 0; i < 8; i++) {
        OK(MPI_File_open(MPI_COMM_SELF, path, MPI_MODE_RDWR, MPI_INFO_NULL, &file));
        OK(MPI_File_get_errhandler(file, &got));
        OK(MPI_File_set_errhandler(file, MPI_ERRORS_ARE_FATAL));
        OK(MPI_File_get_errhandler(file, &other));
        CHECK(got == MPI_ERRORS_RETURN && other == MPI_ERRORS_ARE_FATAL);
        OK(MPI_File_set_errhandler(MPI_FILE_NULL, got));
        OK(MPI_Errhandler_free(&other));
        OK(MPI_File_close(&file));
        OK(MPI_Errhandler_free(&got));
        CHECK(got == MPI_ERRHANDLER_NULL && other == MPI_ERRHANDLER_NULL);
    }
}

static void split_calls(const char *path)
{
    MPI_File file;
    char bytes[4] = "abc";

    OK(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_RDWR, MPI_INFO_NULL, &file));
    CHECK(MPI_File_write_all_end(file, bytes, MPI_STATUS_IGNORE) != MPI_SUCCESS);
    OK(MPI_File_write_at_all_begin(file, 0, bytes, 3, MPI_CHAR));
    CHECK(MPI_File_write_all_begin(file, bytes, 3, MPI_CHAR) != MPI_SUCCESS);
    CHECK(MPI_File_write_all(file, bytes, 3, MPI_CHAR, MPI_STATUS_IGNORE) != MPI_SUCCESS);
    CHECK(MPI_File_write_all_end(file, bytes, MPI_STATUS_IGNORE) != MPI_SUCCESS);
    OK(MPI_File_write_at(file, 0, bytes, 3, MPI_CHAR, MPI_STATUS_IGNORE));
    OK(MPI_File_write_at_all_end(file, bytes, MPI_STATUS_IGNORE));
    OK(MPI_File_close(&file));
}

static void hints(const char *path)
{
    MPI_File file;
    MPI_Info info, got;
    MPI_Group group, world;
    char value[MPI_MAX_INFO_VAL + 1];
    int flag, result, amode;

    if (rank == 0)
        MPI_File_delete(path, MPI_INFO_NULL);
    MPI_Info_create(&info);
    MPI_Info_set(info, "striping_factor", "2");
    MPI_Info_set(info, "striping_unit", "131072");
    MPI_Info_set(info, "cb_buffer_size", "1048576");
    MPI_Info_set(info, "cb_nodes", "1");
    MPI_Info_set(info, "of_no_meaning", "7");
    OK(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR, info, &file));
    OK(MPI_File_get_info(file, &got));
    static const char *const expected[][2] = {{"striping_factor", "2"}, {"striping_unit", "131072"}, {"cb_buffer_size", "1048576"},
                                              {"cb_nodes", "1"},        {"romio_cb_write", "automatic"}};
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        MPI_Info_get(got, expected[i][0], MPI_MAX_INFO_VAL, value, &flag);
        CHECK(flag && !strcmp(value, expected[i][1]));
    }
    MPI_Info_get(got, "of_no_meaning", MPI_MAX_INFO_VAL, value, &flag);
    CHECK(!flag);
    MPI_Info_free(&got);
    MPI_Info_set(info, "romio_cb_write", "disable");
    OK(MPI_File_set_info(file, info));
    OK(MPI_File_get_info(file, &got));
    MPI_Info_get(got, "romio_cb_write", MPI_MAX_INFO_VAL, value, &flag);
    CHECK(flag && !strcmp(value, "disable"));
    MPI_Info_free(&got);
    MPI_Info_free(&info);
    OK(MPI_File_get_group(file, &group));
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_compare(group, world, &result);
    CHECK(result == MPI_IDENT);
    MPI_Group_free(&group);
    MPI_Group_free(&world);
    OK(MPI_File_get_amode(file, &amode));
    CHECK(amode == (MPI_MODE_CREATE | MPI_MODE_RDWR));
    CHECK(MPI_File_f2c(MPI_File_c2f(file)) == file);
    CHECK(MPI_File_f2c(MPI_File_c2f(MPI_FILE_NULL)) == MPI_FILE_NULL);
    OK(MPI_File_close(&file));
}

/* Types that MPI does not allow in views; ROMIO's class for them. One that overlaps itself will do for a file that is only read. */
static void views(const char *path)
{
    const int lengths[3][2] = {{1, 1}, {1, 1}, {3, 1}}, places[3][2] = {{-2, 2}, {3, 0}, {0, 1}};
    MPI_File file;
    MPI_Datatype type;
    int got[4] = {0};

    for (int only_read = 0; only_read < 2; only_read++) {
        OK(MPI_File_open(MPI_COMM_WORLD, path, only_read ? MPI_MODE_RDONLY : MPI_MODE_RDWR, MPI_INFO_NULL, &file));
        for (int i = 0; i < 3; i++) {
            OK(MPI_Type_indexed(2, lengths[i], places[i], MPI_INT, &type));
            OK(MPI_Type_commit(&type));
            int expected = i == 2 && only_read ? MPI_SUCCESS : MPI_ERR_IO;
            FAILS(expected, MPI_File_set_view(file, 0, MPI_INT, type, "native", MPI_INFO_NULL));
            FAILS(expected, MPI_File_set_view(file, 0, type, type, "native", MPI_INFO_NULL));
            MPI_Type_free(&type);
        }
        if (only_read) {
            OK(MPI_File_read_at_all(file, 0, got, 4, MPI_INT, MPI_STATUS_IGNORE));
            CHECK(got[0] == 1 && got[1] == 2 && got[2] == 3 && got[3] == 2);
        } else {
            int numbers[] = {1, 2, 3};
            OK(MPI_File_write_at_all(file, 0, numbers, rank == 0 ? 3 : 0, MPI_INT, MPI_STATUS_IGNORE));
        }
        OK(MPI_File_close(&file));
    }
}

/* One rank deletes the file while the others are about to make it again. */
static void over_and_over(const char *path)
{
    MPI_File file;

    for (int i = 0; i < 15; i++) {
        OK(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file));
        OK(MPI_File_close(&file));
        if (rank == 0)
            OK(MPI_File_delete(path, MPI_INFO_NULL));
    }
    OK(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file));
    OK(MPI_File_close(&file));
}

/* What is wrong is said in words, for the code of the last failure. */
static void words(const char *path)
{
    MPI_File file;
    char before[MPI_MAX_ERROR_STRING], text[MPI_MAX_ERROR_STRING], below[4200];
    int length, code, class;

    OK(MPI_Error_string(MPI_ERR_NO_SPACE, before, &length));
    CHECK(!strstr(before, "MPI_File_"));
    OK(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_RDWR, MPI_INFO_NULL, &file));
    code = MPI_File_set_view(file, -1, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL);
    OK(MPI_Error_string(code, text, &length));
    CHECK(strstr(text, "MPI_File_set_view: the displacement is negative") && length == (int)strlen(text));
    code = MPI_File_seek(file, -1, MPI_SEEK_SET);
    OK(MPI_Error_string(code, text, &length));
    CHECK(strstr(text, "MPI_File_seek") && !strstr(text, "displacement"));
    /* A program's own codes have the program's words. */
    OK(MPI_Add_error_class(&class));
    OK(MPI_Add_error_code(class, &code));
    OK(MPI_Add_error_string(code, "the program's own"));
    OK(MPI_File_call_errhandler(file, code));
    OK(MPI_Error_string(code, text, &length));
    CHECK(!strcmp(text, "the program's own"));
    OK(MPI_File_close(&file));
    snprintf(below, sizeof below, "%s/nothing/here", path);
    code = MPI_File_open(MPI_COMM_SELF, below, MPI_MODE_RDWR, MPI_INFO_NULL, &file);
    OK(MPI_Error_string(code, text, &length));
    CHECK(code != MPI_SUCCESS && length == (int)strlen(text));
}

/* A file of ccPFS and one that is not, open at once. */
static void both(const char *path, const char *outside)
{
    MPI_File ours, other;
    char bytes[8], in[8];
    MPI_Errhandler got;

    memset(bytes, 'A' + rank, sizeof bytes);
    OK(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &ours));
    OK(MPI_File_open(MPI_COMM_WORLD, outside, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &other));
    OK(MPI_File_write_at_all(ours, rank * 8, bytes, 8, MPI_CHAR, MPI_STATUS_IGNORE));
    OK(MPI_File_write_at_all(other, rank * 8, bytes, 8, MPI_CHAR, MPI_STATUS_IGNORE));
    OK(MPI_File_read_at(ours, rank * 8, in, 8, MPI_CHAR, MPI_STATUS_IGNORE));
    CHECK(!memcmp(in, bytes, 8));
    OK(MPI_File_read_at(other, rank * 8, in, 8, MPI_CHAR, MPI_STATUS_IGNORE));
    CHECK(!memcmp(in, bytes, 8));
    OK(MPI_File_get_errhandler(other, &got));
    /* A handler of both files: each handle that MPI gives is one more to free, and it works to the last. */
    MPI_Errhandler own;
    OK(MPI_File_create_errhandler(handler, &own));
    OK(MPI_File_set_errhandler(other, own));
    OK(MPI_File_get_errhandler(other, &got));
    CHECK(got == own);
    OK(MPI_Errhandler_free(&own));
    OK(MPI_File_set_errhandler(ours, got));
    OK(MPI_File_set_errhandler(other, MPI_ERRORS_RETURN));
    OK(MPI_Errhandler_free(&got));
    CHECK(got == MPI_ERRHANDLER_NULL);
    handled = 0;
    FAILS(MPI_ERR_ARG, MPI_File_read_at(ours, -1, in, 1, MPI_CHAR, MPI_STATUS_IGNORE));
    CHECK(handled == 1);
    OK(MPI_File_set_errhandler(ours, MPI_ERRORS_RETURN));
    CHECK(MPI_File_f2c(MPI_File_c2f(other)) == other);
    OK(MPI_File_close(&ours));
    OK(MPI_File_close(&other));
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        OK(MPI_File_delete(outside, MPI_INFO_NULL));
    MPI_Barrier(MPI_COMM_WORLD);
    /* Without the others. */
    OK(MPI_File_open(MPI_COMM_SELF, path, MPI_MODE_RDONLY, MPI_INFO_NULL, &ours));
    OK(MPI_File_read_all(ours, in, 8, MPI_CHAR, MPI_STATUS_IGNORE));
    CHECK(in[0] == 'A');
    OK(MPI_File_close(&ours));
}

/* Relative names: one with colons is a name, one with a prefix has it taken off; the directory may change while they are open. */
static void names(const char *path)
{
    const char *const times = "times_2000-01-24_12:00:00";
    char folder[4096], before[4096], got[4] = "";
    MPI_File file, plain;

    snprintf(folder, sizeof folder, "%s", path);
    *strrchr(folder, '/') = 0;
    CHECK(getcwd(before, sizeof before) && chdir(folder) == 0);
    OK(MPI_File_open(MPI_COMM_WORLD, times, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file));
    OK(MPI_File_write_at(file, rank, "t", 1, MPI_CHAR, MPI_STATUS_IGNORE));
    OK(MPI_File_close(&file));
    CHECK(access(times, F_OK) == 0);
    OK(MPI_File_open(MPI_COMM_WORLD, "ufs:times_2000-01-24_12:00:00", MPI_MODE_RDONLY, MPI_INFO_NULL, &file));
    OK(MPI_File_read_at(file, rank, got, 1, MPI_CHAR, MPI_STATUS_IGNORE));
    CHECK(got[0] == 't');
    OK(MPI_File_close(&file));
    FAILS(MPI_ERR_NO_SUCH_FILE, MPI_File_open(MPI_COMM_WORLD, "ccpfs:00", MPI_MODE_RDONLY, MPI_INFO_NULL, &plain));
    MPI_Barrier(MPI_COMM_WORLD);
    OK(MPI_File_open(MPI_COMM_WORLD, times, MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE, MPI_INFO_NULL, &file));
    CHECK(chdir(before) == 0);
    OK(MPI_File_close(&file));
    CHECK(chdir(folder) == 0 && access(times, F_OK) != 0 && chdir(before) == 0);
}

int main(int argc, char **argv)
{
    const char *path = begin(argc, argv);

    CHECK(argc == 3);
    modes(path);
    sequential(path);
    handlers(path);
    predefined_handlers(path);
    split_calls(path);
    hints(path);
    both(path, argv[2]);
    over_and_over(path);
    views(path);
    words(path);
    names(path);
    return end();
}
