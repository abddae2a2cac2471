/*
 * files.c: opening, closing, deleting, sizes, hints, atomicity.
 */
#define _GNU_SOURCE
#include "layer.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int agreed(struct file *file, int code)
{
    int worst = code;
    PMPI_Allreduce(&code, &worst, 1, MPI_INT, MPI_MAX, file->comm);
    return worst;
}

/* ROMIO's prefixes for file systems ("ufs:", "nfs:") mean nothing here; "ccpfs:" means us. */
static const char *without_prefix(const char *name, int *is_demanded)
{
    static const char *const PREFIXES[] = {"ccpfs",  "ufs",  "nfs",    "xfs", "pvfs2",   "gpfs",
                                           "panfs",  "lustre", "daos", "testfs", "ime", "quobyte"};

    *is_demanded = !strncmp(name, "ccpfs:", 6);
    /* Other names may have colons, too: those of times. */
    for (size_t i = 0; i < sizeof PREFIXES / sizeof PREFIXES[0]; i++) {
        size_t length = strlen(PREFIXES[i]);
        if (!strncmp(name, PREFIXES[i], length) && name[length] == ':')
            return name + length + 1;
    }
    return name;
}

static int amode_class(int amode)
{
    int access = amode & (MPI_MODE_RDONLY | MPI_MODE_RDWR | MPI_MODE_WRONLY);

    if (access != MPI_MODE_RDONLY && access != MPI_MODE_RDWR && access != MPI_MODE_WRONLY)
        return because(MPI_ERR_AMODE, "one of MPI_MODE_RDONLY, MPI_MODE_RDWR and MPI_MODE_WRONLY is needed");
    if (access == MPI_MODE_RDONLY && (amode & (MPI_MODE_CREATE | MPI_MODE_EXCL)))
        return because(MPI_ERR_AMODE, "a file that is only read cannot be created");
    if (access == MPI_MODE_RDWR && (amode & MPI_MODE_SEQUENTIAL))
        return because(MPI_ERR_AMODE, "sequential mode is for reading or writing, not for both");
    return MPI_SUCCESS;
}

static int flags_of(int amode, int is_first)
{
    int flags = amode & MPI_MODE_RDONLY ? O_RDONLY : amode & MPI_MODE_WRONLY ? O_WRONLY : O_RDWR;
    if (is_first && (amode & MPI_MODE_CREATE))
        flags |= O_CREAT;
    if (is_first && (amode & MPI_MODE_EXCL))
        flags |= O_EXCL;
    return flags;
}

/* What rank 0 tells the others. */
struct opening {
    int64_t code;
    int64_t mark;
    /* With MPI_MODE_APPEND: where the file ends. */
    int64_t end;
    struct hints hints;
    /* Names may differ between ranks: all use the shared pointer that rank 0 names. */
    char pointer_path[PATH_MAX + 64];
};

/* Rank 0 creates the file. */
static void open_first(struct file *file, struct opening *opening)
{
    const struct library *ccpfs = library();
    struct hints *hints = &opening->hints;
    mode_t permissions = hints->permissions > 0 ? (mode_t)hints->permissions : 0666;
    uint32_t stripe_count = 1;
    uint64_t stripe_bytes = 1 << 20;
    int flags = flags_of(file->amode, 1);

    file->handle = -1;
    if (hints->stripe_count > 0 || hints->stripe_bytes > 0) {
        uint32_t count = hints->stripe_count > 0 ? (uint32_t)hints->stripe_count : 1;
        uint64_t bytes = hints->stripe_bytes > 0 ? (uint64_t)hints->stripe_bytes : stripe_bytes;
        file->handle = ccpfs->open_striped(file->path, flags, permissions, count, bytes);
        /* A layout that cannot be is a hint that is ignored. */
        if (file->handle < 0 && errno != EINVAL)
            opening->code = class_of_library();
    }
    if (file->handle < 0 && opening->code == MPI_SUCCESS) {
        file->handle = ccpfs->open(file->path, flags, permissions);
        if (file->handle < 0)
            opening->code = class_of_library();
    }
    if (opening->code == MPI_SUCCESS && ccpfs->layout(file->handle, &stripe_count, &stripe_bytes) < 0)
        opening->code = class_of_library();
    struct stat attributes = {0};
    if (opening->code == MPI_SUCCESS && (file->amode & MPI_MODE_APPEND) && ccpfs->fstat(file->handle, &attributes) < 0)
        opening->code = class_of_library();
    opening->end = attributes.st_size;
    hints->stripe_count = stripe_count;
    hints->stripe_bytes = (int64_t)stripe_bytes;
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    opening->mark = ((int64_t)getpid() << 32) ^ ((int64_t)time.tv_sec << 20) ^ time.tv_nsec ^ (int64_t)(intptr_t)file;
}

/* How many ranks write for the others, and who: ranks 0 to n - 1. */
static void choose_aggregators(struct file *file, struct hints *hints)
{
    int64_t stripes = hints->stripe_count * (hints->nodes_multiplier > 0 ? hints->nodes_multiplier : 1);
    char list[HINT_VALUE_MAX] = "";
    size_t length = 0;

    if (hints->cb_nodes <= 0)
        hints->cb_nodes = file->ranks <= 8 || file->ranks <= stripes ? file->ranks : stripes > 8 ? stripes : 8;
    if (hints->cb_nodes > file->ranks)
        hints->cb_nodes = file->ranks;
    hint_set_number(file->strings, "cb_nodes", hints->cb_nodes);
    hint_set_number(file->strings, "striping_factor", hints->stripe_count);
    hint_set_number(file->strings, "striping_unit", hints->stripe_bytes);
    for (int64_t rank = 0; rank < hints->cb_nodes && length + 24 < sizeof list; rank++)
        length += (size_t)snprintf(list + length, sizeof list - length, "%lld ", (long long)rank);
    hint_set(file->strings, "romio_aggregator_list", list);
}

/* The path from the root on: the program may change its directory. As it is, if its directory is not there. */
static void make_absolute(struct file *file)
{
    const char *slash = strrchr(file->path, '/');
    char *folder = slash ? strndup(file->path, (size_t)(slash - file->path) + 1) : strdup(".");
    char *real = folder ? realpath(folder, NULL) : NULL;
    char *path;

    if (real && asprintf(&path, "%s/%s", strcmp(real, "/") ? real : "", slash ? slash + 1 : file->path) >= 0) {
        free(file->path);
        file->path = path;
    }
    free(real);
    free(folder);
}

static void name_pointer(const struct file *file, struct opening *opening)
{
    const char *slash = strrchr(file->path, '/');
    int folder = slash ? (int)(slash - file->path) + 1 : 0;
    int length = snprintf(opening->pointer_path, sizeof opening->pointer_path, "%.*s.ccpfs-mpiio-%016llx", folder, file->path,
                          (unsigned long long)opening->mark);

    if (length >= (int)sizeof opening->pointer_path && opening->code == MPI_SUCCESS)
        opening->code = MPI_ERR_BAD_FILE;
}

static void file_free(struct file *file)
{
    view_free(file);
    hint_strings_free(file->strings);
    pthread_mutex_destroy(&file->lock);
    if (file->comm != MPI_COMM_NULL)
        PMPI_Comm_free(&file->comm);
    free(file->pointer_path);
    free(file->path);
    free(file);
}

/* All ranks: rank 0 first, so that the file exists for the others and EXCL is asked once. */
static int open_all(struct file *file, MPI_Info info)
{
    const struct library *ccpfs = library();
    struct opening opening = {.code = MPI_SUCCESS};
    int code = MPI_SUCCESS;

    hints_take(file->strings, info, file->path);
    hints_read(file->strings, &opening.hints);
    make_absolute(file);
    if (file->rank == 0) {
        open_first(file, &opening);
        name_pointer(file, &opening);
        choose_aggregators(file, &opening.hints);
    }
    PMPI_Bcast(&opening, (int)sizeof opening, MPI_BYTE, 0, file->comm);
    if (opening.code != MPI_SUCCESS) {
        if (file->rank == 0 && file->handle >= 0)
            ccpfs->close(file->handle);
        return (int)opening.code;
    }
    file->hints = opening.hints;
    choose_aggregators(file, &file->hints);
    if (file->rank != 0) {
        file->handle = ccpfs->open(file->path, flags_of(file->amode, 0), 0666);
        if (file->handle < 0)
            code = class_of_library();
    }
    file->pointer_path = strdup(opening.pointer_path);
    if (!file->pointer_path && code == MPI_SUCCESS)
        code = MPI_ERR_NO_MEM;
    file->position = file->pointer_preset = opening.end;
    if (code == MPI_SUCCESS)
        code = locks_set_style(file);
    file->group = (uint64_t)opening.mark | 1;
    code = agreed(file, code);
    if (code == MPI_SUCCESS)
        code = group_join(file);
    if (code != MPI_SUCCESS && file->handle >= 0)
        ccpfs->close(file->handle);
    return code;
}

static struct file *file_new(MPI_Comm comm, const char *path, int amode)
{
    struct file *file = calloc(1, sizeof *file);

    if (!file)
        return NULL;
    file->handle = -1;
    file->pointer_descriptor = -1;
    file->amode = amode;
    file->comm = MPI_COMM_NULL;
    file->etype = file->filetype = MPI_DATATYPE_NULL;
    file->path = strdup(path);
    file->strings = hint_strings_new();
    pthread_mutex_init(&file->lock, NULL);
    if (PMPI_Comm_dup(comm, &file->comm) != MPI_SUCCESS) {
        file->comm = MPI_COMM_NULL;
        file_free(file);
        return NULL;
    }
    PMPI_Comm_set_errhandler(file->comm, MPI_ERRORS_RETURN);
    PMPI_Comm_rank(file->comm, &file->rank);
    PMPI_Comm_size(file->comm, &file->ranks);
    if (!file->path || !file->strings || view_preset(file) != MPI_SUCCESS) {
        file_free(file);
        return NULL;
    }
    return file;
}

EXPORTED int MPI_File_open(MPI_Comm comm, const char *name, int amode, MPI_Info info, MPI_File *handle)
{
    int is_demanded = 0, is_inter = 0, code;
    const char *path = name ? without_prefix(name, &is_demanded) : NULL;

    if (comm == MPI_COMM_NULL || PMPI_Comm_test_inter(comm, &is_inter) != MPI_SUCCESS || is_inter || !path)
        return NEXT(MPI_File_open)(comm, (char *)name, amode, info, handle);
    /* All ranks must come to the same answer: least and most of it, and of the access mode. */
    int is_ours = is_ccpfs_path(path);
    int mine[4] = {is_ours, -is_ours, amode, -amode}, least[4];
    PMPI_Allreduce(mine, least, 4, MPI_INT, MPI_MIN, comm);
    if (least[0] == 0 && least[1] == 0 && !is_demanded)
        return NEXT(MPI_File_open)(comm, (char *)name, amode, info, handle);
    *handle = MPI_FILE_NULL;
    if (least[0] < 0)
        return fail(NULL, MPI_ERR_IO, "MPI_File_open");
    if (least[0] == 0) {
        fprintf(stderr, "ccpfs-mpiio: %s is not on ccPFS%s\n", path, least[1] ? " for all ranks" : "");
        return fail(NULL, MPI_ERR_BAD_FILE, "MPI_File_open");
    }
    code = amode_class(amode);
    if (code == MPI_SUCCESS && least[2] != -least[3])
        code = because(MPI_ERR_NOT_SAME, "the access mode is not the same for all ranks");
    if (code != MPI_SUCCESS)
        return fail(NULL, code, "MPI_File_open");
    struct file *file = file_new(comm, path, amode);
    if (!file)
        return fail(NULL, MPI_ERR_NO_MEM, "MPI_File_open");
    code = open_all(file, info);
    if (code != MPI_SUCCESS) {
        file_free(file);
        return fail(NULL, code, "MPI_File_open");
    }
    errhandler_inherit(file);
    library()->statistic("lock_requests", &file->lock_requests);
    library()->statistic("lock_hits", &file->lock_hits);
    if (file->rank == 0 && is_wanted("CCPFS_MPIIO_HINTS_DISPLAY", "MPICH_MPIIO_HINTS_DISPLAY"))
        hints_display(file->strings, file->path);
    file_register(file);
    *handle = handle_of(file);
    return MPI_SUCCESS;
}

EXPORTED int MPI_File_close(MPI_File *handle)
{
    struct file *file = handle ? file_of(*handle) : NULL;
    int code = MPI_SUCCESS;

    if (!file)
        return NEXT(MPI_File_close)(handle);
    if (file->split)
        return fail(file, because(MPI_ERR_OTHER, SPLIT_UNDER_WAY), "MPI_File_close");
    statistics_report(file);
    /* What could not be written is to be told now, also if the configuration has closing wait for nothing. */
    if (!(file->amode & MPI_MODE_RDONLY) && library()->flush(file->handle) < 0)
        code = class_of_library();
    int left = group_leave(file);
    code = code == MPI_SUCCESS ? left : code;
    if (library()->close(file->handle) < 0 && code == MPI_SUCCESS)
        code = class_of_library();
    /* Nobody uses the file, or its shared pointer, any more when all have come here. */
    code = agreed(file, code);
    pointer_close(file);
    if (file->amode & MPI_MODE_DELETE_ON_CLOSE) {
        if (file->rank == 0 && library()->unlink(file->path) < 0)
            code = class_of_library();
        code = agreed(file, code);
    }
    fail(file, code, "MPI_File_close");
    file_unregister(file);
    errhandler_drop(file);
    file_free(file);
    *handle = MPI_FILE_NULL;
    return code;
}

EXPORTED int MPI_File_delete(const char *name, MPI_Info info)
{
    int is_demanded;
    const char *path = name ? without_prefix(name, &is_demanded) : NULL;

    int is_ours = path ? is_ccpfs_path(path) : 0;
    if (is_ours == 0)
        return NEXT(MPI_File_delete)((char *)name, info);
    if (is_ours < 0)
        return fail(NULL, MPI_ERR_IO, "MPI_File_delete");
    return fail(NULL, library()->unlink(path) < 0 ? class_of_library() : MPI_SUCCESS, "MPI_File_delete");
}

static int may_write(const struct file *file)
{
    return file->amode & MPI_MODE_RDONLY ? because(MPI_ERR_READ_ONLY, OPEN_FOR_READING) : MPI_SUCCESS;
}

/* Rank 0 does it; everybody returns when it is done. */
static int resize(struct file *file, MPI_Offset size, int only_grow, const char *function)
{
    int code = size < 0 ? because(MPI_ERR_ARG, "the size is negative") : may_write(file);
    MPI_Offset least[2] = {size, -size}, same[2];

    PMPI_Allreduce(least, same, 2, MPI_OFFSET, MPI_MIN, file->comm);
    if (code == MPI_SUCCESS && same[0] != -same[1])
        code = because(MPI_ERR_ARG, "the size is not the same for all ranks");
    if (code == MPI_SUCCESS && file->split)
        code = because(MPI_ERR_OTHER, SPLIT_UNDER_WAY);
    /*
     * What the ranks have written before is in the file. A cut by one member of a group might, as any two writes of members, win over what others
     * write later: it is made outside of the group.
     */
    int is_member = file->is_member;
    if (code == MPI_SUCCESS)
        code = group_leave(file);
    code = agreed(file, code);
    if (code != MPI_SUCCESS)
        return fail(file, code, function);
    if (file->rank == 0) {
        int done = only_grow ? (size ? library()->allocate(file->handle, 0, size) : 0) : library()->ftruncate(file->handle, size);
        if (done < 0)
            code = class_of_library();
    }
    PMPI_Bcast(&code, 1, MPI_INT, 0, file->comm);
    if (is_member) {
        int joined = group_join(file);
        code = code == MPI_SUCCESS ? joined : code;
    }
    return fail(file, code, function);
}

EXPORTED int MPI_File_set_size(MPI_File handle, MPI_Offset size)
{
    struct file *file = file_of(handle);
    return file ? resize(file, size, 0, "MPI_File_set_size") : NEXT(MPI_File_set_size)(handle, size);
}

EXPORTED int MPI_File_preallocate(MPI_File handle, MPI_Offset size)
{
    struct file *file = file_of(handle);
    return file ? resize(file, size, 1, "MPI_File_preallocate") : NEXT(MPI_File_preallocate)(handle, size);
}

EXPORTED int MPI_File_get_size(MPI_File handle, MPI_Offset *size)
{
    struct file *file = file_of(handle);
    struct stat attributes;

    if (!file)
        return NEXT(MPI_File_get_size)(handle, size);
    if (library()->fstat(file->handle, &attributes) < 0)
        return fail(file, class_of_library(), "MPI_File_get_size");
    *size = attributes.st_size;
    return MPI_SUCCESS;
}

EXPORTED int MPI_File_get_group(MPI_File handle, MPI_Group *group)
{
    struct file *file = file_of(handle);
    return file ? fail(file, PMPI_Comm_group(file->comm, group), "MPI_File_get_group") : NEXT(MPI_File_get_group)(handle, group);
}

EXPORTED int MPI_File_get_amode(MPI_File handle, int *amode)
{
    struct file *file = file_of(handle);

    if (!file)
        return NEXT(MPI_File_get_amode)(handle, amode);
    *amode = file->amode;
    return MPI_SUCCESS;
}

int hints_agree(struct file *file, MPI_Info info)
{
    struct hints hints;

    hints_take(file->strings, info, NULL);
    hints_read(file->strings, &hints);
    /* The lock mode of an open file does not change, nor does its layout; what all must agree on is what rank 0 says. */
    hints.stripe_count = file->hints.stripe_count;
    hints.stripe_bytes = file->hints.stripe_bytes;
    hints.write_lock_mode = file->hints.write_lock_mode;
    hints.lock_ahead_write = file->hints.lock_ahead_write;
    hints.lock_ahead_extents = file->hints.lock_ahead_extents;
    PMPI_Bcast(&hints, (int)sizeof hints, MPI_BYTE, 0, file->comm);
    file->hints = hints;
    choose_aggregators(file, &file->hints);
    return agreed(file, locks_set_style(file));
}

EXPORTED int MPI_File_set_info(MPI_File handle, MPI_Info info)
{
    struct file *file = file_of(handle);
    return file ? fail(file, hints_agree(file, info), "MPI_File_set_info") : NEXT(MPI_File_set_info)(handle, info);
}

EXPORTED int MPI_File_get_info(MPI_File handle, MPI_Info *info)
{
    struct file *file = file_of(handle);
    return file ? fail(file, hints_to_info(file->strings, info), "MPI_File_get_info") : NEXT(MPI_File_get_info)(handle, info);
}

EXPORTED int MPI_File_set_atomicity(MPI_File handle, int flag)
{
    struct file *file = file_of(handle);
    int mine[2] = {flag != 0, -(flag != 0)}, least[2];

    if (!file)
        return NEXT(MPI_File_set_atomicity)(handle, flag);
    PMPI_Allreduce(mine, least, 2, MPI_INT, MPI_MIN, file->comm);
    if (least[0] != -least[1])
        return fail(file, because(MPI_ERR_NOT_SAME, "the flag is not the same for all ranks"), "MPI_File_set_atomicity");
    /* Members of a group have no atomic accesses: in atomic mode there is no group. */
    int code = agreed(file, flag ? group_leave(file) : MPI_SUCCESS);
    file->is_atomic = flag != 0;
    if (!flag && code == MPI_SUCCESS)
        code = group_join(file);
    return fail(file, code, "MPI_File_set_atomicity");
}

EXPORTED int MPI_File_get_atomicity(MPI_File handle, int *flag)
{
    struct file *file = file_of(handle);

    if (!file)
        return NEXT(MPI_File_get_atomicity)(handle, flag);
    *flag = file->is_atomic;
    return MPI_SUCCESS;
}

EXPORTED int MPI_File_sync(MPI_File handle)
{
    struct file *file = file_of(handle);
    int code;

    if (!file)
        return NEXT(MPI_File_sync)(handle);
    /* A file that is only read has nothing to store, which is no error. */
    code = MPI_SUCCESS;
    if (may_write(file) == MPI_SUCCESS && library()->fsync(file->handle) < 0)
        code = class_of_library();
    /* Members of a group see what the others have written when all have left it. */
    int is_member = file->is_member;
    if (is_member) {
        int left = group_leave(file);
        code = code == MPI_SUCCESS ? left : code;
    }
    code = agreed(file, code);
    if (is_member) {
        int joined = group_join(file);
        code = code == MPI_SUCCESS ? joined : code;
    }
    return fail(file, code, "MPI_File_sync");
}

ALSO_PROFILING(MPI_File_open)
ALSO_PROFILING(MPI_File_close)
ALSO_PROFILING(MPI_File_delete)
ALSO_PROFILING(MPI_File_set_size)
ALSO_PROFILING(MPI_File_preallocate)
ALSO_PROFILING(MPI_File_get_size)
ALSO_PROFILING(MPI_File_get_group)
ALSO_PROFILING(MPI_File_get_amode)
ALSO_PROFILING(MPI_File_set_info)
ALSO_PROFILING(MPI_File_get_info)
ALSO_PROFILING(MPI_File_set_atomicity)
ALSO_PROFILING(MPI_File_get_atomicity)
ALSO_PROFILING(MPI_File_sync)
