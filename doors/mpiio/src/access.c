/*
 * access.c: transfers of one rank.
 */
#include "layer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    /* Parts that are given to the library at once, outside atomic mode. */
    PARTS_MAX = 16384,
    /* Longest part; a call of the library has a limit. */
    PART_BYTES_MAX = 1 << 30,
    /* Memory in pieces shorter than this is gathered first, this much at a time: copying costs less than many short parts. */
    PIECE_BYTES_DIRECT = 65536,
    GATHERED_BYTES = 4 << 20,
};

int memory_open(struct memory *memory, const void *buffer, MPI_Count count, MPI_Datatype datatype)
{
    int code;

    memset(memory, 0, sizeof *memory);
    if (count < 0)
        return MPI_ERR_COUNT;
    if (datatype == MPI_DATATYPE_NULL)
        return MPI_ERR_TYPE;
    code = flatten(datatype, &memory->flat);
    if (code != MPI_SUCCESS) {
        memory_close(memory);
        return code;
    }
    memory->base = (char *)buffer;
    int64_t reach;
    if (__builtin_mul_overflow(memory->flat.bytes, count, &memory->bytes) ||
        __builtin_mul_overflow(memory->flat.extent, count, &reach)) {
        memory_close(memory);
        return MPI_ERR_COUNT;
    }
    struct cursor all = cursor_at(&memory->flat, 0, 0, memory->bytes);
    memory->is_contiguous = cursor_is_contiguous(&all);
    if (memory->is_contiguous && memory->flat.count > 0)
        memory->base += memory->flat.pieces[0].offset;
    return MPI_SUCCESS;
}

void memory_close(struct memory *memory)
{
    flat_free(&memory->flat);
}

void memory_copy(const struct memory *memory, int64_t position, int64_t length, char *buffer, int out)
{
    if (memory->is_contiguous) {
        char *at = memory->base + position;
        memcpy(out ? buffer : at, out ? at : buffer, (size_t)length);
        return;
    }
    struct cursor cursor = cursor_at(&memory->flat, 0, position, length);
    for (struct piece piece = cursor_next(&cursor, length); piece.length > 0; piece = cursor_next(&cursor, length)) {
        char *at = memory->base + piece.offset;
        memcpy(out ? buffer : at, out ? at : buffer, (size_t)piece.length);
        buffer += piece.length;
    }
}

/*
 * A write that stopped before its end without saying why: the rest is given once more, for the reason. Returns an MPI error class; no error
 * if nothing is in the way any more.
 */
static int write_rest(struct file *file, const struct ccpfs_part *parts, size_t count, int64_t written, int64_t *done)
{
    struct ccpfs_part *rest = malloc(count * sizeof *rest);
    size_t left = 0;
    int64_t wanted = 0;

    if (!rest)
        return MPI_ERR_NO_MEM;
    for (size_t i = 0; i < count; i++) {
        /* Parts that go back may have been written in another order: nobody knows which are missing. */
        if (i > 0 && parts[i].offset < parts[i - 1].offset) {
            free(rest);
            return MPI_ERR_IO;
        }
        int64_t length = (int64_t)parts[i].length, passed = written < length ? written : length;
        written -= passed;
        if (passed == length)
            continue;
        rest[left++] = (struct ccpfs_part){
            .offset = parts[i].offset + (uint64_t)passed, .memory = (char *)parts[i].memory + passed, .length = (size_t)(length - passed)};
        wanted += length - passed;
    }
    ssize_t answer = library()->write_parts(file->handle, rest, left);
    int error = errno;
    free(rest);
    if (answer < 0)
        return class_of(error);
    *done += answer;
    return answer < wanted ? MPI_ERR_IO : MPI_SUCCESS;
}

int parts_call(struct file *file, int is_write, int is_atomic, const struct ccpfs_part *parts, size_t count, int64_t *done)
{
    const struct library *ccpfs = library();
    double begun = now();
    struct tally *tally = tally_of(file, is_write);
    int64_t wanted = 0;
    ssize_t answer;

    for (size_t i = 0; i < count; i++)
        wanted += (int64_t)parts[i].length;
    if (is_write)
        answer = is_atomic ? ccpfs->write_atomic(file->handle, parts, count) : ccpfs->write_parts(file->handle, parts, count);
    else
        answer = is_atomic ? ccpfs->read_atomic(file->handle, parts, count) : ccpfs->read_parts(file->handle, parts, count);
    tally->device += now() - begun;
    if (answer < 0)
        return class_of_library();
    int64_t left = answer;
    for (size_t i = 0; i < count && left > 0; i++) {
        int64_t part = (int64_t)parts[i].length < left ? (int64_t)parts[i].length : left;
        count_call(file, is_write, (int64_t)parts[i].offset, part);
        left -= part;
    }
    *done += answer;
    if (!is_write || answer == wanted)
        return MPI_SUCCESS;
    /* Unlike a read, a write has no end of the file to meet. An atomic one that was done in two halves was not atomic. */
    int code = write_rest(file, parts, count, answer, done);
    return code == MPI_SUCCESS && is_atomic ? MPI_ERR_IO : code;
}

/* A growing list of parts. */
struct list {
    struct ccpfs_part *at;
    size_t count, room;
};

static int list_add(struct list *list, int64_t offset, char *memory, int64_t length)
{
    while (length > 0) {
        int64_t part = length < PART_BYTES_MAX ? length : PART_BYTES_MAX;
        if (list->count == list->room) {
            size_t room = list->room ? 2 * list->room : 64;
            struct ccpfs_part *grown = realloc(list->at, room * sizeof *grown);
            if (!grown)
                return MPI_ERR_NO_MEM;
            list->at = grown;
            list->room = room;
        }
        list->at[list->count++] = (struct ccpfs_part){.offset = (uint64_t)offset, .memory = memory, .length = (size_t)part};
        offset += part;
        memory += part;
        length -= part;
    }
    return MPI_SUCCESS;
}

/* Gives the parts to the library; whether the end of the file was met. */
static int list_do(struct transfer *transfer, struct list *list, int is_atomic, int64_t *done, int *is_end)
{
    int64_t wanted = 0, got = 0;
    int code;

    for (size_t i = 0; i < list->count; i++)
        wanted += (int64_t)list->at[i].length;
    code = parts_call(transfer->file, transfer->is_write, is_atomic, list->at, list->count, &got);
    *done += got;
    *is_end = got < wanted;
    list->count = 0;
    return code;
}

static int transfer_directly(struct transfer *transfer, int64_t *done)
{
    struct file *file = transfer->file;
    const struct memory *memory = &transfer->memory;
    struct cursor in_file = cursor_at(&file->tile, file->displacement, transfer->position, memory->bytes);
    struct cursor in_memory = cursor_at(&memory->flat, 0, 0, memory->bytes);
    struct list list = {0};
    struct piece of_memory = {0, 0};
    int is_end = 0, code = MPI_SUCCESS;
    /* One call of the library is one access of MPI where that has to be so, and where it costs nothing. */
    int is_whole = file->is_atomic;
    const char *origin = memory->is_contiguous ? memory->base - (memory->flat.count ? memory->flat.pieces[0].offset : 0)
                                               : memory->base;

    while (in_file.left > 0 && code == MPI_SUCCESS && !is_end) {
        struct piece of_file = cursor_next(&in_file, in_file.left);
        while (of_file.length > 0 && code == MPI_SUCCESS) {
            if (of_memory.length == 0)
                of_memory = cursor_next(&in_memory, in_memory.left);
            int64_t length = of_file.length < of_memory.length ? of_file.length : of_memory.length;
            code = list_add(&list, of_file.offset, (char *)origin + of_memory.offset, length);
            of_file.offset += length;
            of_file.length -= length;
            of_memory.offset += length;
            of_memory.length -= length;
            if (code == MPI_SUCCESS && list.count >= PARTS_MAX && !is_whole) {
                code = list_do(transfer, &list, 0, done, &is_end);
                if (is_end)
                    break;
            }
        }
    }
    if (code == MPI_SUCCESS && list.count > 0 && !is_end)
        code = list_do(transfer, &list, is_whole, done, &is_end);
    free(list.at);
    return code;
}

/* The transfer with its memory gathered into one piece; in atomic mode all of it at once. */
static int transfer_gathered(struct transfer *transfer, int64_t *done)
{
    const struct memory *memory = &transfer->memory;
    int64_t bytes = memory->bytes, most = transfer->file->is_atomic || bytes < GATHERED_BYTES ? bytes : GATHERED_BYTES;
    char *gathered = calloc((size_t)most, 1);
    struct transfer part = *transfer;
    int64_t passed = 0, got = most;
    int code = gathered ? memory_open(&part.memory, gathered, most, MPI_BYTE) : MPI_ERR_NO_MEM;

    while (code == MPI_SUCCESS && passed < bytes && got == part.memory.bytes) {
        part.memory.bytes = bytes - passed < most ? bytes - passed : most;
        part.position = transfer->position + passed;
        got = 0;
        if (transfer->is_write)
            memory_copy(memory, passed, part.memory.bytes, gathered, 1);
        code = transfer_directly(&part, &got);
        if (!transfer->is_write && got > 0)
            memory_copy(memory, passed, got, gathered, 0);
        passed += got;
    }
    *done += passed;
    if (gathered)
        memory_close(&part.memory);
    free(gathered);
    return code;
}

int transfer_alone(struct transfer *transfer, int64_t *done)
{
    const struct memory *memory = &transfer->memory;
    int is_short = memory->flat.count > 0 && memory->flat.bytes / (int64_t)memory->flat.count < PIECE_BYTES_DIRECT;

    return !memory->is_contiguous && is_short ? transfer_gathered(transfer, done) : transfer_directly(transfer, done);
}
