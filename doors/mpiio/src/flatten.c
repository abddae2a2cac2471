/*
 * flatten.c: datatypes as lists of pieces.
 *
 * A datatype is taken apart by MPI's own decoding calls, so every constructor is understood, nested as it may be. Pieces keep the
 * order of the type map; those that touch are joined, so that a contiguous type of any count is one piece.
 */
#include "layer.h"

#include <stdlib.h>
#include <string.h>

/* What MPI_Type_get_envelope and MPI_Type_get_contents say, with all integers in one width. */
struct contents {
    int combiner;
    MPI_Count *integers;
    size_t integer_count;
    MPI_Datatype *types;
    size_t type_count;
};

static int expand(MPI_Datatype datatype, struct flat *flat);

void flat_free(struct flat *flat)
{
    free(flat->pieces);
    free(flat->before);
    memset(flat, 0, sizeof *flat);
}

static int add_piece(struct flat *flat, int64_t offset, int64_t length)
{
    if (length == 0)
        return MPI_SUCCESS;
    if (flat->count > 0) {
        struct piece *last = &flat->pieces[flat->count - 1];
        if (last->offset + last->length == offset) {
            last->length += length;
            return MPI_SUCCESS;
        }
    }
    if (flat->count == flat->room) {
        size_t room = flat->room ? 2 * flat->room : 4;
        struct piece *grown = realloc(flat->pieces, room * sizeof *grown);
        if (!grown)
            return MPI_ERR_NO_MEM;
        flat->pieces = grown;
        flat->room = room;
    }
    flat->pieces[flat->count].offset = offset;
    flat->pieces[flat->count].length = length;
    flat->count++;
    return MPI_SUCCESS;
}

/* `count` copies of `inner`, `stride` bytes apart, the first at `start`. */
static int add_copies(struct flat *flat, const struct flat *inner, int64_t count, int64_t stride, int64_t start)
{
    int code = MPI_SUCCESS;

    if (inner->count == 1 && inner->pieces[0].length == stride)
        return count > 0 ? add_piece(flat, start + inner->pieces[0].offset, stride * count) : MPI_SUCCESS;
    if (inner->count == 0)
        return MPI_SUCCESS;
    for (int64_t copy = 0; copy < count && code == MPI_SUCCESS; copy++)
        for (size_t i = 0; i < inner->count && code == MPI_SUCCESS; i++)
            code = add_piece(flat, start + copy * stride + inner->pieces[i].offset, inner->pieces[i].length);
    return code;
}

int is_named(MPI_Datatype datatype)
{
    int combiner;
#if HAVE_LARGE_COUNTS
    MPI_Count integers, addresses, counts, types;
    PMPI_Type_get_envelope_c(datatype, &integers, &addresses, &counts, &types, &combiner);
#else
    int integers, addresses, types;
    PMPI_Type_get_envelope(datatype, &integers, &addresses, &types, &combiner);
#endif
    return combiner == MPI_COMBINER_NAMED || combiner == MPI_COMBINER_F90_REAL || combiner == MPI_COMBINER_F90_COMPLEX ||
           combiner == MPI_COMBINER_F90_INTEGER;
}

static void contents_free(struct contents *contents)
{
    for (size_t i = 0; i < contents->type_count; i++)
        if (!is_named(contents->types[i]))
            PMPI_Type_free(&contents->types[i]);
    free(contents->integers);
    free(contents->types);
}

/*
 * Integers first, then addresses, then large counts. A type has either addresses or large counts, and their order among the
 * integers is that of the constructor's arguments in all cases but two: see `counts_of`.
 */
#if HAVE_LARGE_COUNTS
static int contents_of(MPI_Datatype datatype, struct contents *contents)
{
    MPI_Count integers, addresses, counts, types;
    int combiner;
    int code = PMPI_Type_get_envelope_c(datatype, &integers, &addresses, &counts, &types, &combiner);

    memset(contents, 0, sizeof *contents);
    contents->combiner = combiner;
    if (code != MPI_SUCCESS || combiner == MPI_COMBINER_NAMED)
        return code;
    int *i = calloc((size_t)integers + 1, sizeof *i);
    MPI_Aint *a = calloc((size_t)addresses + 1, sizeof *a);
    MPI_Count *c = calloc((size_t)counts + 1, sizeof *c);
    contents->types = calloc((size_t)types + 1, sizeof *contents->types);
    contents->integers = calloc((size_t)(integers + addresses + counts) + 1, sizeof *contents->integers);
    code = i && a && c && contents->types && contents->integers ? MPI_SUCCESS : MPI_ERR_NO_MEM;
    if (code == MPI_SUCCESS)
        code = PMPI_Type_get_contents_c(datatype, integers, addresses, counts, types, i, a, c, contents->types);
    if (code == MPI_SUCCESS) {
        contents->type_count = (size_t)types;
        for (MPI_Count n = 0; n < integers; n++)
            contents->integers[contents->integer_count++] = i[n];
        for (MPI_Count n = 0; n < addresses; n++)
            contents->integers[contents->integer_count++] = a[n];
        for (MPI_Count n = 0; n < counts; n++)
            contents->integers[contents->integer_count++] = c[n];
        /* Large-count arrays: the few plain integers (ndims, order, ...) come first here, but not in the plain form. */
        if (counts > 0 && combiner == MPI_COMBINER_SUBARRAY) {
            MPI_Count order = contents->integers[1];
            memmove(&contents->integers[1], &contents->integers[2], (contents->integer_count - 2) * sizeof(MPI_Count));
            contents->integers[contents->integer_count - 1] = order;
        } else if (counts > 0 && combiner == MPI_COMBINER_DARRAY) {
            /* size, rank, ndims, distribs, dargs, psizes, order, gsizes: the last go in front of distribs. */
            size_t small = contents->integer_count - 3 - (size_t)counts;
            MPI_Count *from = &contents->integers[3];
            MPI_Count *moved = malloc((small + 1) * sizeof *moved);
            if (moved) {
                memcpy(moved, from, small * sizeof *moved);
                memmove(from, from + small, (size_t)counts * sizeof *from);
                memcpy(from + counts, moved, small * sizeof *moved);
                free(moved);
            } else {
                code = MPI_ERR_NO_MEM;
            }
        }
    }
    free(i);
    free(a);
    free(c);
    return code;
}
#else
static int contents_of(MPI_Datatype datatype, struct contents *contents)
{
    int integers, addresses, types, combiner;
    int code = PMPI_Type_get_envelope(datatype, &integers, &addresses, &types, &combiner);

    memset(contents, 0, sizeof *contents);
    contents->combiner = combiner;
    if (code != MPI_SUCCESS || combiner == MPI_COMBINER_NAMED)
        return code;
    int *i = calloc((size_t)integers + 1, sizeof *i);
    MPI_Aint *a = calloc((size_t)addresses + 1, sizeof *a);
    contents->types = calloc((size_t)types + 1, sizeof *contents->types);
    contents->integers = calloc((size_t)(integers + addresses) + 1, sizeof *contents->integers);
    code = i && a && contents->types && contents->integers ? MPI_SUCCESS : MPI_ERR_NO_MEM;
    if (code == MPI_SUCCESS)
        code = PMPI_Type_get_contents(datatype, integers, addresses, types, i, a, contents->types);
    if (code == MPI_SUCCESS) {
        contents->type_count = (size_t)types;
        for (int n = 0; n < integers; n++)
            contents->integers[contents->integer_count++] = i[n];
        for (int n = 0; n < addresses; n++)
            contents->integers[contents->integer_count++] = a[n];
    }
    free(i);
    free(a);
    return code;
}
#endif

static int64_t extent_of(MPI_Datatype datatype)
{
    MPI_Count lower, extent;
    PMPI_Type_get_extent_x(datatype, &lower, &extent);
    return extent;
}

/* Basic types: contiguous, but for the pairs of reductions, which are structures of C. */
static int expand_named(MPI_Datatype datatype, struct flat *flat)
{
    static const int second = sizeof(int);
    MPI_Count size;
    int first = 0, at = 0, code;

#define PAIR(name, type)                                                                                                    \
    if (datatype == name) {                                                                                                 \
        struct pair {                                                                                                       \
            type value;                                                                                                     \
            int index;                                                                                                      \
        };                                                                                                                  \
        first = (int)sizeof(type);                                                                                          \
        at = (int)offsetof(struct pair, index);                                                                             \
    }
    PAIR(MPI_FLOAT_INT, float)
    PAIR(MPI_DOUBLE_INT, double)
    PAIR(MPI_LONG_INT, long)
    PAIR(MPI_SHORT_INT, short)
    PAIR(MPI_LONG_DOUBLE_INT, long double)
#undef PAIR
    if (first) {
        code = add_piece(flat, 0, first);
        return code == MPI_SUCCESS ? add_piece(flat, at, second) : code;
    }
    PMPI_Type_size_x(datatype, &size);
    return add_piece(flat, 0, size);
}

static int expand_indexed(const struct contents *c, const struct flat *inner, int64_t extent, struct flat *flat)
{
    const MPI_Count *i = c->integers;
    int is_block = c->combiner == MPI_COMBINER_INDEXED_BLOCK || c->combiner == MPI_COMBINER_HINDEXED_BLOCK;
    int in_bytes = c->combiner != MPI_COMBINER_INDEXED && c->combiner != MPI_COMBINER_INDEXED_BLOCK;
    const MPI_Count *lengths = &i[1];
    const MPI_Count *displacements = is_block ? &i[2] : &i[1 + i[0]];
    int code = MPI_SUCCESS;

    for (MPI_Count block = 0; block < i[0] && code == MPI_SUCCESS; block++) {
        int64_t start = displacements[block] * (in_bytes ? 1 : extent);
        code = add_copies(flat, inner, lengths[is_block ? 0 : block], extent, start);
    }
    return code;
}

static int expand_struct(const struct contents *c, struct flat *flat)
{
    const MPI_Count *i = c->integers;
    int code = MPI_SUCCESS;

    for (MPI_Count field = 0; field < i[0] && code == MPI_SUCCESS; field++) {
        struct flat inner = {0};
        code = expand(c->types[field], &inner);
        if (code == MPI_SUCCESS)
            code = add_copies(flat, &inner, i[1 + field], extent_of(c->types[field]), i[1 + i[0] + field]);
        flat_free(&inner);
    }
    return code;
}

/* What one dimension selects: runs of indices. */
struct runs {
    struct piece *at;
    size_t count;
};

static int runs_add(struct runs *runs, int64_t start, int64_t length)
{
    struct piece *grown;

    if (length <= 0)
        return MPI_SUCCESS;
    grown = realloc(runs->at, (runs->count + 1) * sizeof *grown);
    if (!grown)
        return MPI_ERR_NO_MEM;
    runs->at = grown;
    grown[runs->count].offset = start;
    grown[runs->count].length = length;
    runs->count++;
    return MPI_SUCCESS;
}

/* Wraps one dimension around `flat`, whose elements lie `stride` bytes apart. */
static int wrap(struct flat *flat, const struct runs *runs, int64_t stride)
{
    struct flat wrapped = {0};
    int code = MPI_SUCCESS;

    for (size_t run = 0; run < runs->count && code == MPI_SUCCESS; run++)
        code = add_copies(&wrapped, flat, runs->at[run].length, stride, runs->at[run].offset * stride);
    flat_free(flat);
    *flat = wrapped;
    return code;
}

static int expand_subarray(const struct contents *c, struct flat *inner, int64_t extent, struct flat *flat)
{
    const MPI_Count *i = c->integers;
    MPI_Count dimensions = i[0];
    const MPI_Count *sizes = &i[1], *subsizes = sizes + dimensions, *starts = subsizes + dimensions;
    int is_c = starts[dimensions] == MPI_ORDER_C;
    int64_t stride = extent;
    int code = MPI_SUCCESS;

    for (MPI_Count n = 0; n < dimensions && code == MPI_SUCCESS; n++) {
        MPI_Count d = is_c ? dimensions - 1 - n : n;
        struct runs runs = {0};
        code = runs_add(&runs, starts[d], subsizes[d]);
        if (code == MPI_SUCCESS)
            code = wrap(inner, &runs, stride);
        free(runs.at);
        stride *= sizes[d];
    }
    *flat = *inner;
    memset(inner, 0, sizeof *inner);
    return code;
}

/* Which indices of a dimension of `size` elements belong to process `own` of `processes`. */
static int distributed(struct runs *runs, MPI_Count size, int how, MPI_Count argument, MPI_Count processes, MPI_Count own)
{
    MPI_Count block = argument;
    int code = MPI_SUCCESS;

    if (how == MPI_DISTRIBUTE_NONE)
        return runs_add(runs, 0, size);
    if (argument == MPI_DISTRIBUTE_DFLT_DARG)
        block = how == MPI_DISTRIBUTE_BLOCK ? (size + processes - 1) / processes : 1;
    if (block < 1)
        return MPI_SUCCESS;
    for (MPI_Count start = own * block; start < size && code == MPI_SUCCESS; start += processes * block) {
        code = runs_add(runs, start, start + block < size ? block : size - start);
        if (how == MPI_DISTRIBUTE_BLOCK)
            break;
    }
    return code;
}

static int expand_darray(const struct contents *c, struct flat *inner, int64_t extent, struct flat *flat)
{
    const MPI_Count *i = c->integers;
    MPI_Count dimensions = i[2], rank = i[1];
    const MPI_Count *sizes = &i[3], *how = sizes + dimensions, *arguments = how + dimensions;
    const MPI_Count *processes = arguments + dimensions;
    int is_c = processes[dimensions] == MPI_ORDER_C;
    MPI_Count *own = calloc((size_t)dimensions + 1, sizeof *own);
    int64_t stride = extent;
    int code = own ? MPI_SUCCESS : MPI_ERR_NO_MEM;

    /* Processes are numbered in C order always. If there are more than the grid has, which MPI does not allow, this is what MPICH makes of it. */
    MPI_Count below = i[0];
    for (MPI_Count d = 0; own && d < dimensions; d++) {
        below = below > processes[d] ? below / processes[d] : 1;
        own[d] = rank / below;
        rank %= below;
    }
    for (MPI_Count n = 0; n < dimensions && code == MPI_SUCCESS; n++) {
        MPI_Count d = is_c ? dimensions - 1 - n : n;
        struct runs runs = {0};
        code = distributed(&runs, sizes[d], (int)how[d], arguments[d], processes[d], own[d]);
        if (code == MPI_SUCCESS)
            code = wrap(inner, &runs, stride);
        free(runs.at);
        stride *= sizes[d];
    }
    free(own);
    *flat = *inner;
    memset(inner, 0, sizeof *inner);
    return code;
}

static int expand_around(const struct contents *c, struct flat *inner, struct flat *flat)
{
    const MPI_Count *i = c->integers;
    int64_t extent = extent_of(c->types[0]);
    int code = MPI_SUCCESS;

    switch (c->combiner) {
    case MPI_COMBINER_DUP:
    case MPI_COMBINER_RESIZED:
        return add_copies(flat, inner, 1, 0, 0);
    case MPI_COMBINER_CONTIGUOUS:
        return add_copies(flat, inner, i[0], extent, 0);
    case MPI_COMBINER_VECTOR:
    case MPI_COMBINER_HVECTOR:
        for (MPI_Count block = 0; block < i[0] && code == MPI_SUCCESS; block++) {
            int64_t stride = i[2] * (c->combiner == MPI_COMBINER_VECTOR ? extent : 1);
            code = add_copies(flat, inner, i[1], extent, block * stride);
        }
        return code;
    case MPI_COMBINER_INDEXED:
    case MPI_COMBINER_HINDEXED:
    case MPI_COMBINER_INDEXED_BLOCK:
    case MPI_COMBINER_HINDEXED_BLOCK:
        return expand_indexed(c, inner, extent, flat);
    case MPI_COMBINER_SUBARRAY:
        return expand_subarray(c, inner, extent, flat);
    case MPI_COMBINER_DARRAY:
        return expand_darray(c, inner, extent, flat);
    default:
        return MPI_ERR_TYPE;
    }
}

static int expand(MPI_Datatype datatype, struct flat *flat)
{
    struct contents contents;
    struct flat inner = {0};
    int code = contents_of(datatype, &contents);

    if (code != MPI_SUCCESS) {
        contents_free(&contents);
        return code;
    }
    switch (contents.combiner) {
    case MPI_COMBINER_NAMED:
    case MPI_COMBINER_F90_REAL:
    case MPI_COMBINER_F90_COMPLEX:
    case MPI_COMBINER_F90_INTEGER:
        code = expand_named(datatype, flat);
        break;
    case MPI_COMBINER_STRUCT:
        code = expand_struct(&contents, flat);
        break;
    default:
        code = expand(contents.types[0], &inner);
        if (code == MPI_SUCCESS)
            code = expand_around(&contents, &inner, flat);
        break;
    }
    flat_free(&inner);
    contents_free(&contents);
    return code;
}

int flatten(MPI_Datatype datatype, struct flat *flat)
{
    int code;

    memset(flat, 0, sizeof *flat);
    code = expand(datatype, flat);
    if (code != MPI_SUCCESS)
        return code;
    flat->extent = extent_of(datatype);
    flat->before = malloc((flat->count + 1) * sizeof *flat->before);
    if (!flat->before)
        return MPI_ERR_NO_MEM;
    for (size_t i = 0; i < flat->count; i++) {
        flat->before[i] = flat->bytes;
        flat->bytes += flat->pieces[i].length;
    }
    flat->before[flat->count] = flat->bytes;
    return MPI_SUCCESS;
}

int is_external32_sized(MPI_Datatype datatype)
{
    struct contents contents;
    int answer = contents_of(datatype, &contents) == MPI_SUCCESS;

    if (contents.combiner == MPI_COMBINER_NAMED) {
        MPI_Aint external;
        MPI_Count size;
        PMPI_Type_size_x(datatype, &size);
        answer = PMPI_Pack_external_size("external32", 1, datatype, &external) == MPI_SUCCESS && external == size;
        answer = answer && datatype != MPI_LONG_DOUBLE && datatype != MPI_LONG_DOUBLE_INT;
    }
    for (size_t i = 0; i < contents.type_count && answer; i++)
        answer = is_external32_sized(contents.types[i]);
    contents_free(&contents);
    return answer;
}
