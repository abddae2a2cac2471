/*
 * mpiio_collective: ranks write and read pieces of a file that alternate at random, together, with all kinds of hints, and what is in the
 * file is compared with an image of it that every rank keeps. Arguments: a file, rounds, a seed.
 */
#include "mpiio_check.h"

enum { IMAGE = 3 << 20, PIECES = 4000 };

static unsigned long long state;

/* The same numbers on all ranks. */
static unsigned random_below(unsigned limit)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (unsigned)((state >> 11) % limit);
}

static char *image, *buffer;
static int image_bytes;
static MPI_Aint places[PIECES];
static int lengths[PIECES];
static int pieces;

static char byte_at(int offset, int round)
{
    return (char)(offset * 31 + offset / 256 * 7 + round * 13 + 1);
}

/* Gives pieces of the file to ranks, some to nobody; changes the image. Sets the pieces of this rank, and the bytes of all of them. */
static int deal(int round, int is_write)
{
    static const unsigned SIZES[] = {3, 40, 700, 9000, 60000};
    unsigned most = SIZES[random_below(5)];
    unsigned gaps = random_below(3);
    int offset = (int)random_below(100000), bytes = 0;
    int in_order = random_below(4) == 0;

    pieces = 0;
    for (int piece = 0; piece < PIECES && offset < IMAGE - 70000; piece++) {
        int length = 1 + (int)random_below(most);
        int owner = in_order ? piece * ranks / 300 : (int)random_below((unsigned)ranks);
        if (gaps && random_below(5) < gaps) {
            offset += length;
            continue;
        }
        if (owner >= ranks)
            break;
        if (owner == rank) {
            places[pieces] = offset;
            lengths[pieces++] = length;
            bytes += length;
        }
        if (is_write)
            for (int i = offset; i < offset + length; i++)
                image[i] = byte_at(i, round);
        offset += length;
        if (is_write && offset > image_bytes)
            image_bytes = offset;
    }
    return bytes;
}

static void set_hints(MPI_File file)
{
    static const char *const HOW[] = {"enable", "disable", "automatic"};
    MPI_Info info;
    char number[16];
    int how = (int)random_below(3);

    MPI_Info_create(&info);
    MPI_Info_set(info, "romio_cb_write", HOW[how]);
    MPI_Info_set(info, "romio_cb_read", HOW[random_below(3)]);
    snprintf(number, sizeof number, "%u", 1 + random_below((unsigned)ranks));
    MPI_Info_set(info, "cb_nodes", number);
    snprintf(number, sizeof number, "%u", 1 + random_below(300000));
    MPI_Info_set(info, "cb_buffer_size", random_below(2) ? number : "16777216");
    OK(MPI_File_set_info(file, info));
    MPI_Info_free(&info);
}

/* The view of this rank: its pieces, as elements of a letter. */
static void set_view(MPI_File file)
{
    MPI_Datatype type;
    OK(MPI_Type_create_hindexed(pieces, lengths, places, MPI_CHAR, &type));
    OK(MPI_Type_commit(&type));
    OK(MPI_File_set_view(file, 0, MPI_CHAR, type, "native", MPI_INFO_NULL));
    OK(MPI_Type_free(&type));
}

static void write_round(MPI_File file, int round)
{
    MPI_Status status;
    MPI_Datatype memory;
    int bytes = deal(round, 1), at = 0;

    for (int piece = 0; piece < pieces; piece++)
        for (int i = 0; i < lengths[piece]; i++)
            buffer[2 * at++] = byte_at((int)places[piece] + i, round);
    set_view(file);
    /* From memory with holes. */
    OK(MPI_Type_create_resized(MPI_CHAR, 0, 2, &memory));
    OK(MPI_Type_commit(&memory));
    int first = bytes / 3;
    OK(MPI_File_write_all(file, buffer, first, memory, &status));
    CHECK(bytes_of(&status) == first);
    OK(MPI_File_write_at_all(file, first, buffer + 2 * (MPI_Aint)first, bytes - first, memory, &status));
    CHECK(bytes_of(&status) == bytes - first);
    OK(MPI_Type_free(&memory));
    MPI_Barrier(MPI_COMM_WORLD);
}

static void read_round(MPI_File file, int round)
{
    MPI_Status status;
    int bytes = deal(round, 0), at = 0, there = 0;

    memset(buffer, 'x', (size_t)bytes + 1);
    set_view(file);
    OK(MPI_File_read_all(file, buffer, bytes, MPI_CHAR, &status));
    for (int piece = 0; piece < pieces; piece++) {
        for (int i = 0; i < lengths[piece]; i++, at++) {
            int offset = (int)places[piece] + i;
            CHECK(buffer[at] == (offset < image_bytes ? image[offset] : 'x'));
            there += offset < image_bytes;
        }
    }
    CHECK(bytes_of(&status) == there);
}

int main(int argc, char **argv)
{
    const char *path = begin(argc, argv);
    MPI_File file;
    MPI_Offset size;
    MPI_Status status;

    CHECK(argc == 4);
    state = strtoull(argv[3], NULL, 10) * 2654435761u + 88172645463325252ull;
    image = calloc(IMAGE, 1);
    buffer = malloc(2 * IMAGE + 1);
    OK(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file));
    OK(MPI_File_set_size(file, 0));
    for (int round = 0; round < atoi(argv[2]); round++) {
        set_hints(file);
        write_round(file, round);
        set_hints(file);
        read_round(file, round);
        OK(MPI_File_set_view(file, 0, MPI_CHAR, MPI_CHAR, "native", MPI_INFO_NULL));
        OK(MPI_File_get_size(file, &size));
        CHECK(size == image_bytes);
        OK(MPI_File_read_at(file, 0, buffer, IMAGE, MPI_CHAR, &status));
        CHECK(bytes_of(&status) == image_bytes && !memcmp(buffer, image, (size_t)image_bytes));
        MPI_Barrier(MPI_COMM_WORLD);
        if (random_below(4) == 0) {
            OK(MPI_File_set_size(file, 0));
            memset(image, 0, IMAGE);
            image_bytes = 0;
        }
    }
    OK(MPI_File_close(&file));
    free(image);
    free(buffer);
    return end();
}
