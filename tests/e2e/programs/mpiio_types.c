/*
 * mpiio_types: every constructor of datatypes, as the view of a file and as memory. What must come out is what MPI_Unpack and MPI_Pack,
 * which know nothing of files, make of the same datatypes. Each rank has a part of the file of its own.
 */
#include "mpiio_check.h"

#include <stddef.h>

enum { TYPES = 26, IMAGE = 1 << 16, DISPLACEMENT = 37 };

struct mixed {
    char letter;
    double number;
    short few[3];
};

static MPI_Datatype types[TYPES];
static int type_count;

static void add(MPI_Datatype type)
{
    CHECK(type_count < TYPES);
    OK(MPI_Type_commit(&type));
    types[type_count++] = type;
}

static MPI_Datatype resized(MPI_Datatype type, MPI_Aint lower, MPI_Aint extent)
{
    MPI_Datatype made;
    OK(MPI_Type_create_resized(type, lower, extent, &made));
    return made;
}

static void make_simple(void)
{
    MPI_Datatype type, inner;
    int lengths[] = {2, 0, 1, 3}, places[] = {1, 4, 5, 9};
    MPI_Aint bytes[] = {3, 20, 33, 64};

    add(resized(MPI_CHAR, 0, 3));
    OK(MPI_Type_contiguous(7, MPI_INT, &type));
    add(type);
    OK(MPI_Type_vector(3, 2, 4, MPI_INT, &type));
    add(type);
    OK(MPI_Type_create_hvector(4, 1, 13, MPI_INT, &type));
    add(type);
    OK(MPI_Type_indexed(4, lengths, places, MPI_SHORT, &type));
    add(type);
    OK(MPI_Type_create_hindexed(4, lengths, bytes, MPI_INT, &type));
    add(type);
    OK(MPI_Type_create_indexed_block(4, 1, places, MPI_DOUBLE, &type));
    add(type);
    OK(MPI_Type_create_hindexed_block(4, 2, bytes, MPI_INT, &type));
    add(type);
    OK(MPI_Type_dup(type, &inner));
    add(inner);
    /* Nested: vectors of indexed of vectors, with an extent that has room. */
    OK(MPI_Type_vector(2, 1, 3, MPI_CHAR, &inner));
    OK(MPI_Type_indexed(4, lengths, places, inner, &type));
    inner = resized(type, 0, 80);
    OK(MPI_Type_vector(3, 2, 3, inner, &type));
    add(type);
    OK(MPI_Type_vector(2, 1, 2, MPI_SHORT_INT, &type));
    add(type);
    OK(MPI_Type_contiguous(2, MPI_DOUBLE_INT, &type));
    add(type);
    OK(MPI_Type_contiguous(3, MPI_LONG_DOUBLE_INT, &type));
    add(type);
}

static void make_arrays(void)
{
    MPI_Datatype type;
    int sizes[] = {5, 6, 7}, subsizes[] = {2, 3, 4}, starts[] = {1, 2, 3};
    int distributions[4][3] = {
        {MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_CYCLIC, MPI_DISTRIBUTE_NONE},
        {MPI_DISTRIBUTE_CYCLIC, MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_NONE},
        {MPI_DISTRIBUTE_NONE, MPI_DISTRIBUTE_CYCLIC, MPI_DISTRIBUTE_BLOCK},
        {MPI_DISTRIBUTE_CYCLIC, MPI_DISTRIBUTE_NONE, MPI_DISTRIBUTE_CYCLIC},
    };
    int arguments[4][3] = {
        {MPI_DISTRIBUTE_DFLT_DARG, 2, MPI_DISTRIBUTE_DFLT_DARG},
        {MPI_DISTRIBUTE_DFLT_DARG, 4, MPI_DISTRIBUTE_DFLT_DARG},
        {MPI_DISTRIBUTE_DFLT_DARG, 3, MPI_DISTRIBUTE_DFLT_DARG},
        {2, MPI_DISTRIBUTE_DFLT_DARG, MPI_DISTRIBUTE_DFLT_DARG},
    };
    int grids[4][3] = {{2, 2, 1}, {2, 2, 1}, {1, 2, 2}, {2, 1, 2}};

    OK(MPI_Type_create_subarray(3, sizes, subsizes, starts, MPI_ORDER_C, MPI_INT, &type));
    add(type);
    OK(MPI_Type_create_subarray(3, sizes, subsizes, starts, MPI_ORDER_FORTRAN, MPI_SHORT, &type));
    add(type);
    for (int i = 0; i < 4; i++) {
        OK(MPI_Type_create_darray(4, (rank + i) % 4, 3, sizes, distributions[i], arguments[i], grids[i],
                                  i % 2 ? MPI_ORDER_FORTRAN : MPI_ORDER_C, MPI_INT, &type));
        add(type);
    }
}

static void make_structures(void)
{
    MPI_Datatype type, inner, parts[] = {MPI_CHAR, MPI_DOUBLE, MPI_SHORT};
    int lengths[] = {1, 1, 3}, nothing[] = {0, 0};
    MPI_Aint places[] = {offsetof(struct mixed, letter), offsetof(struct mixed, number), offsetof(struct mixed, few)};

    OK(MPI_Type_create_struct(3, lengths, places, parts, &type));
    add(resized(type, 0, sizeof(struct mixed)));
    OK(MPI_Type_create_hvector(2, 1, 100, type, &inner));
    parts[1] = inner;
    places[1] = 3;
    places[2] = 200;
    OK(MPI_Type_create_struct(3, lengths, places, parts, &type));
    add(type);
    /* One that starts with a hole and ends with one. */
    OK(MPI_Type_create_hindexed(1, lengths, &places[2], MPI_CHAR, &inner));
    add(resized(inner, 0, 333));
    OK(MPI_Type_indexed(2, nothing, nothing, MPI_INT, &type));
    add(type);
#if MPI_VERSION >= 4
    MPI_Count wide[] = {5, 6}, part[] = {2, 3}, from[] = {1, 2};
    OK(MPI_Type_vector_c(3, 2, 4, MPI_INT, &type));
    add(type);
    OK(MPI_Type_create_subarray_c(2, wide, part, from, MPI_ORDER_FORTRAN, MPI_INT, &type));
    add(type);
#endif
}

/* The part of this rank, through a view. */
static void as_view(MPI_File file, MPI_Datatype type, int copies)
{
    static char image[IMAGE], found[IMAGE], packed[IMAGE], back[IMAGE];
    MPI_Aint lower, extent;
    MPI_Offset own = (MPI_Offset)rank * IMAGE, displacement = own + DISPLACEMENT;
    MPI_Status status;
    int size, position = 0;

    MPI_Type_size(type, &size);
    MPI_Type_get_extent(type, &lower, &extent);
    CHECK(DISPLACEMENT + copies * extent < IMAGE);
    for (int i = 0; i < IMAGE; i++)
        packed[i] = (char)(i * 7 + rank + i / 251);
    memset(image, 0, IMAGE);
    memset(back, 0, IMAGE);
    if (size > 0)
        OK(MPI_Unpack(packed, IMAGE, &position, image + DISPLACEMENT, copies, type, MPI_COMM_SELF));
    OK(MPI_File_set_size(file, 0));
    OK(MPI_File_set_size(file, (MPI_Offset)ranks * IMAGE));
    OK(MPI_File_set_view(file, displacement, MPI_BYTE, type, "native", MPI_INFO_NULL));
    /* In odd portions, by the individual pointer, and from an offset. */
    int first = size * copies / 3, second = size * copies / 2;
    OK(MPI_File_write(file, packed, first, MPI_BYTE, &status));
    CHECK(bytes_of(&status) == first);
    OK(MPI_File_write_all(file, packed + first, second, MPI_BYTE, &status));
    OK(MPI_File_write_at(file, first + second, packed + first + second, size * copies - first - second, MPI_BYTE, &status));
    OK(MPI_File_read_at_all(file, 0, back, size * copies, MPI_BYTE, &status));
    CHECK(bytes_of(&status) == size * copies && !memcmp(back, packed, (size_t)(size * copies)));
    OK(MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL));
    OK(MPI_File_read_at(file, own, found, IMAGE, MPI_BYTE, &status));
    CHECK(!memcmp(found, image, IMAGE));
}

/* The part of this rank, from memory of that type and back. */
static void as_memory(MPI_File file, MPI_Datatype type, int copies)
{
    static char image[IMAGE], packed[IMAGE], found[IMAGE], back[IMAGE], expected[IMAGE];
    MPI_Offset own = (MPI_Offset)rank * IMAGE;
    MPI_Status status;
    int size, position = 0, count;

    MPI_Type_size(type, &size);
    for (int i = 0; i < IMAGE; i++)
        image[i] = (char)(i * 11 + rank + i / 241);
    if (size > 0)
        OK(MPI_Pack(image + DISPLACEMENT, copies, type, packed, IMAGE, &position, MPI_COMM_SELF));
    OK(MPI_File_write_at_all(file, own, image + DISPLACEMENT, copies, type, &status));
    if (size > 0) {
        MPI_Get_count(&status, type, &count);
        CHECK(count == copies);
    }
    OK(MPI_File_read_at(file, own, found, size * copies, MPI_BYTE, &status));
    CHECK(!memcmp(found, packed, (size_t)(size * copies)));
    memset(back, 'x', IMAGE);
    memset(expected, 'x', IMAGE);
    position = 0;
    if (size > 0)
        OK(MPI_Unpack(packed, IMAGE, &position, expected + DISPLACEMENT, copies, type, MPI_COMM_SELF));
    OK(MPI_File_read_at_all(file, own, back + DISPLACEMENT, copies, type, &status));
    CHECK(!memcmp(back, expected, IMAGE));
}

/* Absolute addresses, negative strides and displacements: memory only. */
static void odd_memory(MPI_File file)
{
    MPI_Datatype backwards, absolute;
    MPI_Aint places[2];
    int numbers[10], first = 11, second[2] = {22, 33}, lengths[] = {1, 2}, got[10];
    MPI_Datatype parts[] = {MPI_INT, MPI_INT};
    MPI_Offset own = (MPI_Offset)rank * IMAGE;

    for (int i = 0; i < 10; i++)
        numbers[i] = 100 * rank + i;
    OK(MPI_Type_vector(10, 1, -1, MPI_INT, &backwards));
    OK(MPI_Type_commit(&backwards));
    OK(MPI_File_write_at(file, own, &numbers[9], 1, backwards, MPI_STATUS_IGNORE));
    OK(MPI_File_read_at(file, own, got, 10, MPI_INT, MPI_STATUS_IGNORE));
    for (int i = 0; i < 10; i++)
        CHECK(got[i] == 100 * rank + 9 - i);
    MPI_Get_address(&first, &places[0]);
    MPI_Get_address(second, &places[1]);
    OK(MPI_Type_create_struct(2, lengths, places, parts, &absolute));
    OK(MPI_Type_commit(&absolute));
    OK(MPI_File_write_at_all(file, own, MPI_BOTTOM, 1, absolute, MPI_STATUS_IGNORE));
    first = second[0] = second[1] = 0;
    OK(MPI_File_read_at_all(file, own, MPI_BOTTOM, 1, absolute, MPI_STATUS_IGNORE));
    CHECK(first == 11 && second[0] == 22 && second[1] == 33);
    MPI_Type_free(&backwards);
    MPI_Type_free(&absolute);
}

static void views(MPI_File file)
{
    MPI_Datatype etype, filetype, got_etype, got_filetype;
    MPI_Offset displacement;
    char datarep[MPI_MAX_DATAREP_STRING];
    int integers, addresses, datatypes, combiner, number = 0x01020304, swapped;
    unsigned char bytes[4];

    OK(MPI_Type_contiguous(2, MPI_INT, &etype));
    OK(MPI_Type_vector(2, 1, 2, etype, &filetype));
    OK(MPI_Type_commit(&etype));
    OK(MPI_Type_commit(&filetype));
    OK(MPI_File_set_view(file, 24, etype, filetype, "native", MPI_INFO_NULL));
    MPI_Type_free(&filetype);
    OK(MPI_File_get_view(file, &displacement, &got_etype, &got_filetype, datarep));
    CHECK(displacement == 24 && !strcmp(datarep, "native"));
    MPI_Type_free(&got_etype);
    MPI_Type_free(&got_filetype);
    OK(MPI_File_get_byte_offset(file, 1, &displacement));
    CHECK(displacement == 24 + 16);
    OK(MPI_File_get_byte_offset(file, 2, &displacement));
    CHECK(displacement == 24 + 24);
    /* Not a multiple of the etype. */
    CHECK(MPI_File_write_at(file, 0, &number, 1, MPI_INT, MPI_STATUS_IGNORE) != MPI_SUCCESS);
    FAILS(MPI_ERR_ARG, MPI_File_set_view(file, 0, etype, MPI_INT, "native", MPI_INFO_NULL));
    MPI_Type_free(&etype);
    OK(MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "EXTERNAL32", MPI_INFO_NULL));
    OK(MPI_File_get_view(file, &displacement, &got_etype, &got_filetype, datarep));
    MPI_Type_get_envelope(got_etype, &integers, &addresses, &datatypes, &combiner);
    CHECK(combiner == MPI_COMBINER_NAMED && got_etype == MPI_INT && !strcmp(datarep, "external32"));
    OK(MPI_File_write_at(file, rank, &number, 1, MPI_INT, MPI_STATUS_IGNORE));
    OK(MPI_File_read_at_all(file, rank, &swapped, 1, MPI_INT, MPI_STATUS_IGNORE));
    CHECK(swapped == number);
    OK(MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "internal", MPI_INFO_NULL));
    OK(MPI_File_read_at(file, 4 * rank, bytes, 4, MPI_BYTE, MPI_STATUS_IGNORE));
    CHECK(bytes[0] == 1 && bytes[1] == 2 && bytes[2] == 3 && bytes[3] == 4);
}

int main(int argc, char **argv)
{
    const char *path = begin(argc, argv);
    MPI_File file;

    make_simple();
    make_arrays();
    make_structures();
    OK(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file));
    for (int atomic = 0; atomic < 2; atomic++) {
        OK(MPI_File_set_atomicity(file, atomic));
        for (int i = 0; i < type_count; i++) {
            as_view(file, types[i], 5);
            as_memory(file, types[i], 5);
        }
        odd_memory(file);
    }
    views(file);
    OK(MPI_File_close(&file));
    for (int i = 0; i < type_count; i++)
        MPI_Type_free(&types[i]);
    return end();
}
