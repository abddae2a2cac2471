/*
 * view.c: which bytes of a file a rank sees, and the places in it.
 */
#include "layer.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Data representations that the program has registered. */
struct registered {
    char name[MPI_MAX_DATAREP_STRING];
    /* It does not convert anything. */
    int is_native;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct registered *representations;
static int representation_count;

void view_free(struct file *file)
{
    if (file->etype != MPI_DATATYPE_NULL && !is_named(file->etype))
        PMPI_Type_free(&file->etype);
    if (file->filetype != MPI_DATATYPE_NULL && !is_named(file->filetype))
        PMPI_Type_free(&file->filetype);
    flat_free(&file->tile);
}

int view_preset(struct file *file)
{
    file->etype = MPI_BYTE;
    file->filetype = MPI_BYTE;
    file->etype_bytes = 1;
    file->is_monotone = 1;
    file->representation = NATIVE;
    strcpy(file->datarep, "native");
    return flatten(MPI_BYTE, &file->tile);
}

int view_place(const struct file *file, MPI_Offset etypes, int64_t bytes, int64_t *position)
{
    const struct flat *tile = &file->tile;
    int64_t last, end, reach = 0;

    if (__builtin_mul_overflow(etypes, file->etype_bytes, position) || __builtin_add_overflow(*position, bytes, &last))
        return because(MPI_ERR_ARG, "farther than offsets reach");
    if (bytes == 0 || tile->bytes == 0)
        return MPI_SUCCESS;
    for (size_t i = file->is_monotone ? tile->count - 1 : 0; i < tile->count; i++) {
        if (__builtin_add_overflow(tile->pieces[i].offset, tile->pieces[i].length, &end))
            return because(MPI_ERR_ARG, "farther than offsets reach");
        reach = reach > end ? reach : end;
    }
    if (__builtin_mul_overflow((last - 1) / tile->bytes, tile->extent, &end) || __builtin_add_overflow(end, reach, &end) ||
        __builtin_add_overflow(end, file->displacement, &end))
        return because(MPI_ERR_ARG, "farther than offsets reach");
    return MPI_SUCCESS;
}

/* A handle of our own of a type. */
static MPI_Datatype kept(MPI_Datatype datatype)
{
    MPI_Datatype copy = datatype;
    if (!is_named(datatype))
        PMPI_Type_dup(datatype, &copy);
    return copy;
}

/* MPI's own representations; ROMIO takes capitals, too. NULL if it is none of them. */
static const char *own_representation(const char *name)
{
    static const char *const OWN[] = {"native", "internal", "external32"};

    for (size_t i = 0; i < sizeof OWN / sizeof OWN[0]; i++)
        if (!strcasecmp(name, OWN[i]))
            return OWN[i];
    return NULL;
}

static int read_representation(const char *name, enum representation *representation)
{
    int code = because(MPI_ERR_UNSUPPORTED_DATAREP, "the data representation is not registered, or converts");

    *representation = NATIVE;
    if (!name || strlen(name) >= MPI_MAX_DATAREP_STRING)
        return because(MPI_ERR_ARG, "the name of the data representation is too long, or there is none");
    const char *own = own_representation(name);
    if (own) {
        *representation = strcmp(own, "external32") ? NATIVE : EXTERNAL32;
        return MPI_SUCCESS;
    }
    pthread_mutex_lock(&lock);
    for (int i = 0; i < representation_count; i++)
        if (!strcmp(representations[i].name, name) && representations[i].is_native)
            code = MPI_SUCCESS;
    pthread_mutex_unlock(&lock);
    return code;
}

/* Whether no piece begins before the one before it ends, in a copy of the type and from one copy to the next. */
static int is_ordered(const struct flat *tile)
{
    int64_t end = 0;

    for (size_t i = 0; i < tile->count; i++) {
        if (tile->pieces[i].offset < end)
            return 0;
        end = tile->pieces[i].offset + tile->pieces[i].length;
    }
    return tile->count == 0 || tile->extent + tile->pieces[0].offset >= end;
}

/* What MPI demands of the types of a view; classes are ROMIO's. */
static int check_order(const struct file *file, const struct flat *tile)
{
    for (size_t i = 0; i < tile->count; i++) {
        const struct piece *piece = &tile->pieces[i], *before = i > 0 ? piece - 1 : NULL;
        if (piece->offset < 0)
            return because(MPI_ERR_IO, "displacements of etype and filetype must not be negative");
        if (before && piece->offset < before->offset)
            return because(MPI_ERR_IO, "displacements of etype and filetype must not decrease");
        if (before && piece->offset < before->offset + before->length && !(file->amode & MPI_MODE_RDONLY))
            return because(MPI_ERR_IO, "etype and filetype of a file that is written must not overlap themselves");
    }
    return MPI_SUCCESS;
}

static int check_etype(const struct file *file, MPI_Datatype etype)
{
    struct flat flat;
    int code = flatten(etype, &flat);

    if (code == MPI_SUCCESS)
        code = check_order(file, &flat);
    flat_free(&flat);
    return code;
}

/* Looks at the arguments of MPI_File_set_view; `tile` is to be freed in any case. */
static int check_view(const struct file *file, MPI_Offset displacement, MPI_Datatype etype, MPI_Datatype filetype,
                      const char *datarep, struct flat *tile, int64_t *etype_bytes, enum representation *representation)
{
    MPI_Count size;
    int is_sequential = (file->amode & MPI_MODE_SEQUENTIAL) != 0;
    int code;

    memset(tile, 0, sizeof *tile);
    if (etype == MPI_DATATYPE_NULL || filetype == MPI_DATATYPE_NULL)
        return because(MPI_ERR_TYPE, "etype or filetype is MPI_DATATYPE_NULL");
    if (is_sequential != (displacement == MPI_DISPLACEMENT_CURRENT))
        return because(MPI_ERR_ARG, "the displacement is MPI_DISPLACEMENT_CURRENT in sequential mode, and only there");
    if (!is_sequential && displacement < 0)
        return because(MPI_ERR_ARG, "the displacement is negative");
    code = read_representation(datarep, representation);
    if (code != MPI_SUCCESS)
        return code;
    if (*representation == EXTERNAL32 && !(is_external32_sized(etype) && is_external32_sized(filetype)))
        return because(MPI_ERR_UNSUPPORTED_DATAREP, "a type has another size in external32");
    code = flatten(filetype, tile);
    if (code != MPI_SUCCESS)
        return code;
    PMPI_Type_size_x(etype, &size);
    *etype_bytes = size;
    if (tile->bytes > 0 && (size == 0 || tile->bytes % size != 0))
        return because(MPI_ERR_ARG, "the filetype is not made of whole etypes");
    code = check_order(file, tile);
    return code == MPI_SUCCESS ? check_etype(file, etype) : code;
}

EXPORTED int MPI_File_set_view(MPI_File handle, MPI_Offset displacement, MPI_Datatype etype, MPI_Datatype filetype,
                               const char *datarep, MPI_Info info)
{
    struct file *file = file_of(handle);
    struct flat tile;
    int64_t etype_bytes = 1;
    enum representation representation = NATIVE;
    MPI_Offset current = 0;
    int code;

    if (!file)
        return NEXT(MPI_File_set_view)(handle, displacement, etype, filetype, (char *)datarep, info);
    code = check_view(file, displacement, etype, filetype, datarep, &tile, &etype_bytes, &representation);
    if (code == MPI_SUCCESS && displacement == MPI_DISPLACEMENT_CURRENT) {
        /* The place of the shared pointer in the view that is left. */
        code = pointer_add(file, 0, &current);
        int64_t position = 0;
        if (code == MPI_SUCCESS)
            code = view_place(file, current, 1, &position);
        if (code == MPI_SUCCESS) {
            struct cursor cursor = cursor_at(&file->tile, file->displacement, position, 1);
            displacement = cursor_next(&cursor, 1).offset;
        }
    }
    code = agreed(file, code);
    if (code != MPI_SUCCESS) {
        flat_free(&tile);
        return fail(file, code, "MPI_File_set_view");
    }
    view_free(file);
    file->tile = tile;
    file->is_monotone = is_ordered(&tile);
    file->etype = kept(etype);
    file->filetype = kept(filetype);
    file->etype_bytes = etype_bytes;
    file->displacement = displacement;
    file->representation = representation;
    strcpy(file->datarep, own_representation(datarep) ? own_representation(datarep) : datarep);
    pthread_mutex_lock(&file->lock);
    file->position = 0;
    pthread_mutex_unlock(&file->lock);
    /* Nobody has used the shared pointer of a file that was just opened: it is 0 then, and rank 0 knows. */
    file->pointer_preset = 0;
    if (file->rank == 0)
        code = pointer_reset(file);
    int hinted = hints_agree(file, info);
    code = agreed(file, code);
    return fail(file, code == MPI_SUCCESS ? hinted : code, "MPI_File_set_view");
}

EXPORTED int MPI_File_get_view(MPI_File handle, MPI_Offset *displacement, MPI_Datatype *etype, MPI_Datatype *filetype, char *datarep)
{
    struct file *file = file_of(handle);

    if (!file)
        return NEXT(MPI_File_get_view)(handle, displacement, etype, filetype, datarep);
    *displacement = file->displacement;
    *etype = kept(file->etype);
    *filetype = kept(file->filetype);
    strcpy(datarep, file->datarep);
    return MPI_SUCCESS;
}

EXPORTED int MPI_File_get_byte_offset(MPI_File handle, MPI_Offset offset, MPI_Offset *in_file)
{
    struct file *file = file_of(handle);

    if (!file)
        return NEXT(MPI_File_get_byte_offset)(handle, offset, in_file);
    if (file->amode & MPI_MODE_SEQUENTIAL)
        return fail(file, because(MPI_ERR_UNSUPPORTED_OPERATION, OPEN_SEQUENTIAL), "MPI_File_get_byte_offset");
    if (offset < 0)
        return fail(file, because(MPI_ERR_ARG, "the offset is negative"), "MPI_File_get_byte_offset");
    int64_t position;
    int code = view_place(file, offset, 1, &position);
    if (code != MPI_SUCCESS)
        return fail(file, code, "MPI_File_get_byte_offset");
    struct cursor cursor = cursor_at(&file->tile, file->displacement, position, 1);
    *in_file = cursor.left > 0 ? cursor_next(&cursor, 1).offset : file->displacement;
    return MPI_SUCCESS;
}

static int type_extent(MPI_File handle, MPI_Datatype datatype, MPI_Count *extent, const char *name)
{
    struct file *file = file_of(handle);
    MPI_Count lower;

    if (datatype == MPI_DATATYPE_NULL)
        return fail(file, because(MPI_ERR_TYPE, "the datatype is MPI_DATATYPE_NULL"), name);
    if (file->representation == EXTERNAL32 && !is_external32_sized(datatype))
        return fail(file, because(MPI_ERR_UNSUPPORTED_DATAREP, "a type has another size in external32"), name);
    return fail(file, PMPI_Type_get_extent_x(datatype, &lower, extent), name);
}

EXPORTED int MPI_File_get_type_extent(MPI_File handle, MPI_Datatype datatype, MPI_Aint *extent)
{
    MPI_Count wide = 0;
    int code;

    if (!file_of(handle))
        return NEXT(MPI_File_get_type_extent)(handle, datatype, extent);
    code = type_extent(handle, datatype, &wide, "MPI_File_get_type_extent");
    *extent = (MPI_Aint)wide;
    return code;
}

#if HAVE_LARGE_COUNTS
EXPORTED int MPI_File_get_type_extent_c(MPI_File handle, MPI_Datatype datatype, MPI_Count *extent)
{
    return file_of(handle) ? type_extent(handle, datatype, extent, "MPI_File_get_type_extent_c")
                           : NEXT(MPI_File_get_type_extent_c)(handle, datatype, extent);
}
#endif

static int remember(const char *name, int is_native)
{
    struct registered *grown;
    int code = MPI_SUCCESS;

    if (!name || strlen(name) >= MPI_MAX_DATAREP_STRING)
        return MPI_SUCCESS;
    pthread_mutex_lock(&lock);
    grown = realloc(representations, (size_t)(representation_count + 1) * sizeof *grown);
    if (grown) {
        representations = grown;
        strcpy(grown[representation_count].name, name);
        grown[representation_count++].is_native = is_native;
    } else {
        code = MPI_ERR_NO_MEM;
    }
    pthread_mutex_unlock(&lock);
    return code;
}

EXPORTED int MPI_Register_datarep(const char *name, MPI_Datarep_conversion_function *reader,
                                  MPI_Datarep_conversion_function *writer, MPI_Datarep_extent_function *extent, void *state)
{
    int code = NEXT(MPI_Register_datarep)((char *)name, reader, writer, extent, state);
    return code == MPI_SUCCESS ? remember(name, reader == MPI_CONVERSION_FN_NULL && writer == MPI_CONVERSION_FN_NULL) : code;
}

#if HAVE_LARGE_COUNTS
EXPORTED int MPI_Register_datarep_c(const char *name, MPI_Datarep_conversion_function_c *reader,
                                    MPI_Datarep_conversion_function_c *writer, MPI_Datarep_extent_function *extent, void *state)
{
    int code = NEXT(MPI_Register_datarep_c)(name, reader, writer, extent, state);
    return code == MPI_SUCCESS ? remember(name, reader == MPI_CONVERSION_FN_NULL_C && writer == MPI_CONVERSION_FN_NULL_C) : code;
}
#endif

ALSO_PROFILING(MPI_File_set_view)
ALSO_PROFILING(MPI_File_get_view)
ALSO_PROFILING(MPI_File_get_byte_offset)
ALSO_PROFILING(MPI_File_get_type_extent)
ALSO_PROFILING(MPI_Register_datarep)
#if HAVE_LARGE_COUNTS
ALSO_PROFILING(MPI_File_get_type_extent_c)
ALSO_PROFILING(MPI_Register_datarep_c)
#endif
