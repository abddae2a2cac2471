/*
 * data.c: the functions that read and write, and file pointers.
 *
 * All of them are one: `perform`. What differs is where the place comes from, whether the ranks do it together, and how the
 * program learns of the end.
 */
#include "layer.h"

#include <stdlib.h>
#include <string.h>

enum place { EXPLICIT, INDIVIDUAL, SHARED };
enum end { BLOCKING, REQUEST, SPLIT };

/* One call of the program. */
struct call {
    const char *name;
    int is_write;
    int is_collective;
    enum place place;
    enum end end;
    MPI_Offset offset;
    void *buffer;
    MPI_Count count;
    MPI_Datatype datatype;
};

static void set_status(MPI_Status *status, int64_t bytes)
{
    if (status == MPI_STATUS_IGNORE)
        return;
    PMPI_Status_set_elements_x(status, MPI_BYTE, bytes);
    PMPI_Status_set_cancelled(status, 0);
}

static int check(const struct file *file, const struct call *call)
{
    MPI_Count size, bytes;

    if (call->count < 0)
        return because(MPI_ERR_COUNT, "the count is negative");
    if (call->datatype == MPI_DATATYPE_NULL)
        return because(MPI_ERR_TYPE, "the datatype is MPI_DATATYPE_NULL");
    if (call->place == EXPLICIT && call->offset < 0)
        return because(MPI_ERR_ARG, "the offset is negative");
    if (call->is_write && (file->amode & MPI_MODE_RDONLY))
        return because(MPI_ERR_READ_ONLY, OPEN_FOR_READING);
    if (!call->is_write && (file->amode & MPI_MODE_WRONLY))
        return because(MPI_ERR_ACCESS, "the file is open for writing only");
    if (call->place != SHARED && (file->amode & MPI_MODE_SEQUENTIAL))
        return because(MPI_ERR_UNSUPPORTED_OPERATION, OPEN_SEQUENTIAL);
    if (call->is_collective && file->split)
        return because(MPI_ERR_OTHER, SPLIT_UNDER_WAY);
    PMPI_Type_size_x(call->datatype, &size);
    if (__builtin_mul_overflow(size, call->count, &bytes))
        return because(MPI_ERR_COUNT, "farther than counts reach");
    if (file->etype_bytes > 0 && bytes % file->etype_bytes != 0)
        return because(MPI_ERR_IO, "the amount is not a multiple of the etype");
    if (bytes > 0 && file->tile.bytes == 0)
        return because(MPI_ERR_IO, "the view has no bytes");
    if (file->representation == EXTERNAL32 && !is_external32_sized(call->datatype))
        return because(MPI_ERR_CONVERSION, "a type has another size in external32");
    return MPI_SUCCESS;
}

/* Takes the next `amount` etypes off the shared pointer, for all ranks in their order. */
static int take_in_order(struct file *file, int code, MPI_Offset amount, MPI_Offset *start)
{
    int64_t mine[2] = {amount, code}, before[2] = {0, 0}, answer[2] = {0, code};
    int last = file->ranks - 1;

    PMPI_Exscan(mine, before, 2, MPI_INT64_T, MPI_SUM, file->comm);
    if (file->rank == 0)
        before[0] = before[1] = 0;
    if (file->rank == last) {
        MPI_Offset first = 0;
        /* A rank that cannot take part takes nothing; the others are served. */
        answer[1] = pointer_add(file, before[0] + amount, &first);
        answer[0] = first;
    }
    PMPI_Bcast(answer, 2, MPI_INT64_T, last, file->comm);
    *start = answer[0] + before[0];
    return code != MPI_SUCCESS ? code : (int)answer[1];
}

/* Where the call begins, in etypes; moves the pointer that it uses. */
static int find_place(struct file *file, const struct call *call, int code, MPI_Offset etypes, MPI_Offset *start)
{
    MPI_Offset after;

    switch (call->place) {
    case EXPLICIT:
        *start = call->offset;
        return code;
    case INDIVIDUAL:
        pthread_mutex_lock(&file->lock);
        *start = file->position;
        if (code == MPI_SUCCESS && __builtin_add_overflow(file->position, etypes, &after))
            code = MPI_ERR_ARG;
        if (code == MPI_SUCCESS)
            file->position = after;
        pthread_mutex_unlock(&file->lock);
        return code;
    case SHARED:
        if (call->is_collective && call->end != REQUEST)
            return take_in_order(file, code, code == MPI_SUCCESS ? etypes : 0, start);
        return code == MPI_SUCCESS ? pointer_add(file, etypes, start) : code;
    }
    return MPI_ERR_INTERN;
}

/* A read that met the end of the file leaves the individual pointer there, as ROMIO does. */
static void put_back(struct file *file, const struct call *call, int64_t missing_bytes)
{
    if (call->place != INDIVIDUAL || call->is_write || missing_bytes <= 0 || file->etype_bytes == 0)
        return;
    pthread_mutex_lock(&file->lock);
    file->position -= missing_bytes / file->etype_bytes;
    pthread_mutex_unlock(&file->lock);
}

/* In external32 the transfer is one of bytes that were, or are to be, converted. */
static int convert_first(struct transfer *transfer, const struct call *call, char **packed)
{
    int64_t bytes = transfer->memory.bytes;
    int code = MPI_SUCCESS;

    *packed = malloc((size_t)bytes + 1);
    if (!*packed)
        return MPI_ERR_NO_MEM;
    if (call->is_write)
        code = external_pack(call->buffer, call->count, call->datatype, *packed, bytes);
    memory_close(&transfer->memory);
    return code == MPI_SUCCESS ? memory_open(&transfer->memory, *packed, bytes, MPI_BYTE) : code;
}

/* Of a read that is short only the bytes that were there change in memory, also within the last copy of the type. */
static int convert_last(const struct call *call, char *packed, int64_t bytes, int64_t done)
{
    int code = MPI_SUCCESS;

    if (done == 0)
        return code;
    if (done < bytes) {
        char *before = malloc((size_t)bytes);
        code = before ? external_pack(call->buffer, call->count, call->datatype, before, bytes) : MPI_ERR_NO_MEM;
        if (code == MPI_SUCCESS)
            memcpy(packed + done, before + done, (size_t)(bytes - done));
        free(before);
    }
    return code == MPI_SUCCESS ? external_unpack(packed, bytes, call->buffer, call->count, call->datatype) : code;
}

static int perform(struct file *file, const struct call *call, int64_t *done)
{
    struct transfer transfer = {.file = file, .is_write = call->is_write};
    struct tally *tally = tally_of(file, call->is_write);
    int is_together = call->is_collective && call->end != REQUEST;
    double begun = now();
    MPI_Offset start = 0;
    char *packed = NULL;
    int code = check(file, call);

    *done = 0;
    if (code == MPI_SUCCESS)
        code = memory_open(&transfer.memory, call->buffer, call->count, call->datatype);
    int64_t bytes = code == MPI_SUCCESS ? transfer.memory.bytes : 0;
    code = find_place(file, call, code, file->etype_bytes ? bytes / file->etype_bytes : 0, &start);
    if (code == MPI_SUCCESS)
        code = view_place(file, start, bytes, &transfer.position);
    if (code == MPI_SUCCESS && file->representation == EXTERNAL32)
        code = convert_first(&transfer, call, &packed);
    if (call->is_collective)
        tally->collective_calls++;
    else
        tally->independent_calls++;
    /* A rank with an error goes with the others, with nothing to do: they must not wait for it. */
    if (code != MPI_SUCCESS)
        transfer.memory.bytes = transfer.position = 0;
    if (is_together) {
        int shared = transfer_together(&transfer, done);
        code = code == MPI_SUCCESS ? shared : code;
    } else if (code == MPI_SUCCESS) {
        code = transfer_alone(&transfer, done);
    }
    if (code == MPI_SUCCESS && packed && !call->is_write)
        code = convert_last(call, packed, bytes, *done);
    put_back(file, call, bytes - *done);
    free(packed);
    memory_close(&transfer.memory);
    tally->total += now() - begun;
    return code;
}

/* ---- the three ends ---- */

static int finish_blocking(struct file *file, const struct call *call, MPI_Status *status)
{
    int64_t done;
    int code = perform(file, call, &done);

    if (code == MPI_SUCCESS)
        set_status(status, done);
    return fail(file, code, call->name);
}

/* The transfer is done when the call returns: data go to the cache, or come from it. The request says how much it was. */
static int request_query(void *state, MPI_Status *status)
{
    int64_t *done = state;

    set_status(status, *done);
    status->MPI_SOURCE = MPI_UNDEFINED;
    status->MPI_TAG = MPI_UNDEFINED;
    return MPI_SUCCESS;
}

static int request_free(void *state)
{
    free(state);
    return MPI_SUCCESS;
}

static int request_cancel(void *state, int complete)
{
    (void)state;
    (void)complete;
    return MPI_SUCCESS;
}

static int finish_request(struct file *file, const struct call *call, MPI_Request *request)
{
    int64_t *done = malloc(sizeof *done);
    int code = done ? perform(file, call, done) : MPI_ERR_NO_MEM;

    if (code == MPI_SUCCESS)
        code = PMPI_Grequest_start(request_query, request_free, request_cancel, done, request);
    if (code == MPI_SUCCESS)
        return PMPI_Grequest_complete(*request);
    free(done);
    *request = MPI_REQUEST_NULL;
    return fail(file, code, call->name);
}

static int begin_split(struct file *file, const struct call *call)
{
    int code;

    if (file->split)
        return fail(file, because(MPI_ERR_OTHER, SPLIT_UNDER_WAY), call->name);
    code = perform(file, call, &file->split_bytes);
    if (code == MPI_SUCCESS)
        file->split = call->name;
    return fail(file, code, call->name);
}

static int end_split(struct file *file, const char *begun_by, const char *name, MPI_Status *status)
{
    /* The name of the call that began it starts with that of the call that ends it, and "_begin" follows. */
    size_t length = strlen(begun_by);
    if (!file->split || strncmp(file->split, begun_by, length) || strncmp(file->split + length, "_begin", 6))
        return fail(file, because(MPI_ERR_OTHER, "another split collective operation is under way, or none"), name);
    file->split = NULL;
    set_status(status, file->split_bytes);
    return MPI_SUCCESS;
}

/* ---- the functions of MPI ---- */

#define CALL(function, write, collective, where, how, at)                                                                   \
    struct file *file = file_of(fh);                                                                                        \
    struct call call = {#function, write, collective, where, how, at, (void *)buf, count, datatype};

/* Each with a count of type int and, in MPI 4, with a large one. */
#define BOTH(MAKE, name, ...) MAKE(name, int, __VA_ARGS__) LARGE(MAKE, name, __VA_ARGS__)
#if HAVE_LARGE_COUNTS
#define LARGE(MAKE, name, ...) MAKE(name##_c, MPI_Count, __VA_ARGS__)
#else
#define LARGE(MAKE, name, ...)
#endif

#define AT(name, number, memory, write, collective)                                                                         \
    EXPORTED int name(MPI_File fh, MPI_Offset offset, memory buf, number count, MPI_Datatype datatype, MPI_Status *status)  \
    {                                                                                                                       \
        CALL(name, write, collective, EXPLICIT, BLOCKING, offset)                                                           \
        return file ? finish_blocking(file, &call, status) : NEXT(name)(fh, offset, buf, count, datatype, status);             \
    }                                                                                                                       \
    ALSO_PROFILING(name)
#define PLAIN(name, number, memory, write, collective, where)                                                               \
    EXPORTED int name(MPI_File fh, memory buf, number count, MPI_Datatype datatype, MPI_Status *status)                     \
    {                                                                                                                       \
        CALL(name, write, collective, where, BLOCKING, 0)                                                                   \
        return file ? finish_blocking(file, &call, status) : NEXT(name)(fh, buf, count, datatype, status);                     \
    }                                                                                                                       \
    ALSO_PROFILING(name)
#define START_AT(name, number, memory, write, collective)                                                                   \
    EXPORTED int name(MPI_File fh, MPI_Offset offset, memory buf, number count, MPI_Datatype datatype, MPI_Request *request) \
    {                                                                                                                       \
        CALL(name, write, collective, EXPLICIT, REQUEST, offset)                                                            \
        return file ? finish_request(file, &call, request) : NEXT(name)(fh, offset, buf, count, datatype, request);            \
    }                                                                                                                       \
    ALSO_PROFILING(name)
#define START(name, number, memory, write, collective, where)                                                               \
    EXPORTED int name(MPI_File fh, memory buf, number count, MPI_Datatype datatype, MPI_Request *request)                   \
    {                                                                                                                       \
        CALL(name, write, collective, where, REQUEST, 0)                                                                    \
        return file ? finish_request(file, &call, request) : NEXT(name)(fh, buf, count, datatype, request);                    \
    }                                                                                                                       \
    ALSO_PROFILING(name)
#define BEGIN_AT(name, number, memory, write)                                                                               \
    EXPORTED int name(MPI_File fh, MPI_Offset offset, memory buf, number count, MPI_Datatype datatype)                      \
    {                                                                                                                       \
        CALL(name, write, 1, EXPLICIT, SPLIT, offset)                                                                       \
        return file ? begin_split(file, &call) : NEXT(name)(fh, offset, buf, count, datatype);                                 \
    }                                                                                                                       \
    ALSO_PROFILING(name)
#define BEGIN(name, number, memory, write, where)                                                                           \
    EXPORTED int name(MPI_File fh, memory buf, number count, MPI_Datatype datatype)                                         \
    {                                                                                                                       \
        CALL(name, write, 1, where, SPLIT, 0)                                                                               \
        return file ? begin_split(file, &call) : NEXT(name)(fh, buf, count, datatype);                                         \
    }                                                                                                                       \
    ALSO_PROFILING(name)
#define END(name, memory)                                                                                         \
    EXPORTED int name##_end(MPI_File fh, memory buf, MPI_Status *status)                                                    \
    {                                                                                                                       \
        struct file *file = file_of(fh);                                                                                    \
        return file ? end_split(file, #name, #name "_end", status) : NEXT(name##_end)(fh, buf, status);                        \
    }                                                                                                                       \
    ALSO_PROFILING(name##_end)

typedef void *into;
typedef const void *from;

BOTH(AT, MPI_File_read_at, into, 0, 0)
BOTH(AT, MPI_File_read_at_all, into, 0, 1)
BOTH(AT, MPI_File_write_at, from, 1, 0)
BOTH(AT, MPI_File_write_at_all, from, 1, 1)
BOTH(PLAIN, MPI_File_read, into, 0, 0, INDIVIDUAL)
BOTH(PLAIN, MPI_File_read_all, into, 0, 1, INDIVIDUAL)
BOTH(PLAIN, MPI_File_read_shared, into, 0, 0, SHARED)
BOTH(PLAIN, MPI_File_read_ordered, into, 0, 1, SHARED)
BOTH(PLAIN, MPI_File_write, from, 1, 0, INDIVIDUAL)
BOTH(PLAIN, MPI_File_write_all, from, 1, 1, INDIVIDUAL)
BOTH(PLAIN, MPI_File_write_shared, from, 1, 0, SHARED)
BOTH(PLAIN, MPI_File_write_ordered, from, 1, 1, SHARED)
BOTH(START_AT, MPI_File_iread_at, into, 0, 0)
BOTH(START_AT, MPI_File_iread_at_all, into, 0, 1)
BOTH(START_AT, MPI_File_iwrite_at, from, 1, 0)
BOTH(START_AT, MPI_File_iwrite_at_all, from, 1, 1)
BOTH(START, MPI_File_iread, into, 0, 0, INDIVIDUAL)
BOTH(START, MPI_File_iread_all, into, 0, 1, INDIVIDUAL)
BOTH(START, MPI_File_iread_shared, into, 0, 0, SHARED)
BOTH(START, MPI_File_iwrite, from, 1, 0, INDIVIDUAL)
BOTH(START, MPI_File_iwrite_all, from, 1, 1, INDIVIDUAL)
BOTH(START, MPI_File_iwrite_shared, from, 1, 0, SHARED)
BOTH(BEGIN_AT, MPI_File_read_at_all_begin, into, 0)
BOTH(BEGIN_AT, MPI_File_write_at_all_begin, from, 1)
BOTH(BEGIN, MPI_File_read_all_begin, into, 0, INDIVIDUAL)
BOTH(BEGIN, MPI_File_write_all_begin, from, 1, INDIVIDUAL)
BOTH(BEGIN, MPI_File_read_ordered_begin, into, 0, SHARED)
BOTH(BEGIN, MPI_File_write_ordered_begin, from, 1, SHARED)
END(MPI_File_read_at_all, into)
END(MPI_File_write_at_all, from)
END(MPI_File_read_all, into)
END(MPI_File_write_all, from)
END(MPI_File_read_ordered, into)
END(MPI_File_write_ordered, from)

/* ---- file pointers ---- */

/* The number of etypes of the view up to the end of the file. */
static int etypes_to_end(struct file *file, MPI_Offset *etypes)
{
    struct stat attributes;
    const struct flat *tile = &file->tile;
    int64_t bytes = 0;

    if (library()->fstat(file->handle, &attributes) < 0)
        return class_of_library();
    int64_t inside = attributes.st_size - file->displacement;
    if (inside > 0 && tile->bytes > 0 && tile->extent > 0) {
        /* The first byte of the type may lie behind its extent: each piece has its own copies below the end. */
        for (size_t i = 0; i < tile->count; i++) {
            int64_t below = inside - tile->pieces[i].offset, length = tile->pieces[i].length;
            if (below <= 0)
                continue;
            int64_t rest = below % tile->extent;
            bytes += below / tile->extent * length + (rest < length ? rest : length);
        }
    }
    *etypes = file->etype_bytes ? (bytes + file->etype_bytes - 1) / file->etype_bytes : 0;
    return MPI_SUCCESS;
}

static int seek_target(struct file *file, MPI_Offset offset, int whence, MPI_Offset current, MPI_Offset *target)
{
    MPI_Offset origin = 0;
    int code = MPI_SUCCESS;

    if (whence == MPI_SEEK_CUR)
        origin = current;
    else if (whence == MPI_SEEK_END)
        code = etypes_to_end(file, &origin);
    else if (whence != MPI_SEEK_SET)
        return because(MPI_ERR_ARG, "whence is none of MPI_SEEK_SET, MPI_SEEK_CUR and MPI_SEEK_END");
    if (code == MPI_SUCCESS && (__builtin_add_overflow(origin, offset, target) || *target < 0))
        code = because(MPI_ERR_ARG, "the offset leads before the beginning, or too far");
    return code;
}

EXPORTED int MPI_File_seek(MPI_File fh, MPI_Offset offset, int whence)
{
    struct file *file = file_of(fh);
    MPI_Offset target = 0;
    int code;

    if (!file)
        return NEXT(MPI_File_seek)(fh, offset, whence);
    if (file->amode & MPI_MODE_SEQUENTIAL)
        return fail(file, because(MPI_ERR_UNSUPPORTED_OPERATION, OPEN_SEQUENTIAL), "MPI_File_seek");
    pthread_mutex_lock(&file->lock);
    code = seek_target(file, offset, whence, file->position, &target);
    if (code == MPI_SUCCESS)
        file->position = target;
    pthread_mutex_unlock(&file->lock);
    return fail(file, code, "MPI_File_seek");
}

EXPORTED int MPI_File_get_position(MPI_File fh, MPI_Offset *offset)
{
    struct file *file = file_of(fh);

    if (!file)
        return NEXT(MPI_File_get_position)(fh, offset);
    if (file->amode & MPI_MODE_SEQUENTIAL)
        return fail(file, because(MPI_ERR_UNSUPPORTED_OPERATION, OPEN_SEQUENTIAL), "MPI_File_get_position");
    pthread_mutex_lock(&file->lock);
    *offset = file->position;
    pthread_mutex_unlock(&file->lock);
    return MPI_SUCCESS;
}

EXPORTED int MPI_File_seek_shared(MPI_File fh, MPI_Offset offset, int whence)
{
    struct file *file = file_of(fh);
    MPI_Offset mine[2] = {offset, -offset}, least[2], current = 0, target = 0;
    int code = MPI_SUCCESS;

    if (!file)
        return NEXT(MPI_File_seek_shared)(fh, offset, whence);
    if (file->amode & MPI_MODE_SEQUENTIAL)
        return fail(file, because(MPI_ERR_UNSUPPORTED_OPERATION, OPEN_SEQUENTIAL), "MPI_File_seek_shared");
    PMPI_Allreduce(mine, least, 2, MPI_OFFSET, MPI_MIN, file->comm);
    if (least[0] != -least[1])
        return fail(file, because(MPI_ERR_ARG, "the offset is not the same for all ranks"), "MPI_File_seek_shared");
    if (file->rank == 0) {
        code = pointer_add(file, 0, &current);
        if (code == MPI_SUCCESS)
            code = seek_target(file, offset, whence, current, &target);
        if (code == MPI_SUCCESS)
            code = pointer_set(file, target);
    }
    PMPI_Bcast(&code, 1, MPI_INT, 0, file->comm);
    return fail(file, code, "MPI_File_seek_shared");
}

EXPORTED int MPI_File_get_position_shared(MPI_File fh, MPI_Offset *offset)
{
    struct file *file = file_of(fh);

    if (!file)
        return NEXT(MPI_File_get_position_shared)(fh, offset);
    if (file->amode & MPI_MODE_SEQUENTIAL)
        return fail(file, because(MPI_ERR_UNSUPPORTED_OPERATION, OPEN_SEQUENTIAL), "MPI_File_get_position_shared");
    return fail(file, pointer_add(file, 0, offset), "MPI_File_get_position_shared");
}

ALSO_PROFILING(MPI_File_seek)
ALSO_PROFILING(MPI_File_get_position)
ALSO_PROFILING(MPI_File_seek_shared)
ALSO_PROFILING(MPI_File_get_position_shared)
