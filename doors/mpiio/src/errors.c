/*
 * errors.c: error classes, and the error handlers of files.
 *
 * MPI keeps the function behind an error handler to itself, so the layer remembers it when the handler is made, and keeps handlers
 * that our files use from being freed.
 */
#define _GNU_SOURCE
#include "layer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* An error handler of the program, for files. */
struct remembered {
    MPI_Errhandler errhandler;
    MPI_File_errhandler_function *function;
    /* Handles that the program has, and files of ours that use it. */
    int references;
    /* How many of them MPI has counted, and must be told of. */
    int of_mpi;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct remembered *handlers;
static int count;
/* What a new file begins with. */
static MPI_Errhandler inherited;
static int has_inherited;

/* What this thread's last failure was, in words, and what is known of one that has not been told yet. */
static __thread struct {
    int code;
    const char *function;
    char words[160];
} told, known;

int because(int code, const char *words)
{
    known.code = code;
    snprintf(known.words, sizeof known.words, "%s", words);
    return code;
}

static int class_of_number(int error)
{
    switch (error) {
    case 0:
        return MPI_SUCCESS;
    case ENOENT:
        return MPI_ERR_NO_SUCH_FILE;
    case EEXIST:
        return MPI_ERR_FILE_EXISTS;
    case EACCES:
    case EPERM:
        return MPI_ERR_ACCESS;
    case EROFS:
        return MPI_ERR_READ_ONLY;
    case ENOSPC:
        return MPI_ERR_NO_SPACE;
    case EDQUOT:
        return MPI_ERR_QUOTA;
    case ENAMETOOLONG:
    case ENOTDIR:
    case EISDIR:
    case ELOOP:
        return MPI_ERR_BAD_FILE;
    case ETXTBSY:
    case EBUSY:
        return MPI_ERR_FILE_IN_USE;
    case ENOMEM:
        return MPI_ERR_NO_MEM;
    case EINVAL:
    case EFBIG:
        return MPI_ERR_ARG;
    default:
        return MPI_ERR_IO;
    }
}

int class_of(int error)
{
    char words[sizeof known.words] = "";
    return because(class_of_number(error), strerror_r(error, words, sizeof words));
}

int class_of_library(void)
{
    int class = class_of_number(errno);
    return because(class, library()->error_message());
}

/* With `lock`. NULL if there is none. */
static struct remembered *remembered(MPI_Errhandler errhandler)
{
    for (int i = 0; i < count; i++)
        if (handlers[i].references > 0 && handlers[i].errhandler == errhandler)
            return &handlers[i];
    return NULL;
}

static int is_predefined(MPI_Errhandler errhandler)
{
#if MPI_VERSION >= 4
    if (errhandler == MPI_ERRORS_ABORT)
        return 1;
#endif
    return errhandler == MPI_ERRORS_RETURN || errhandler == MPI_ERRORS_ARE_FATAL;
}

/* With `lock`. A place for a handler that is not remembered yet, with no references; NULL if there is no memory. */
static struct remembered *remember(MPI_Errhandler errhandler, MPI_File_errhandler_function *function)
{
    int slot = 0;

    while (slot < count && handlers[slot].references > 0)
        slot++;
    if (slot == count) {
        struct remembered *grown = realloc(handlers, (size_t)(count + 1) * sizeof *grown);
        if (!grown)
            return NULL;
        handlers = grown;
        count++;
    }
    handlers[slot] = (struct remembered){.errhandler = errhandler, .function = function};
    return &handlers[slot];
}

/* Open MPI counts references of predefined handlers, too: one that we have given out must not be given back to it. */
static int refer_as(MPI_Errhandler errhandler, int of_mpi)
{
    pthread_mutex_lock(&lock);
    struct remembered *found = remembered(errhandler);
    if (!found && is_predefined(errhandler))
        found = remember(errhandler, NULL);
    if (found) {
        found->references++;
        found->of_mpi += of_mpi;
    }
    pthread_mutex_unlock(&lock);
    return found != NULL;
}

static int refer(MPI_Errhandler errhandler)
{
    return refer_as(errhandler, 0);
}

/* One reference less: whether MPI is to be told, because it counts more than are left, or because it alone knows the handler. */
static int release(MPI_Errhandler errhandler, int otherwise)
{
    int is_told = otherwise;

    pthread_mutex_lock(&lock);
    struct remembered *found = remembered(errhandler);
    if (found) {
        is_told = --found->references < found->of_mpi;
        found->of_mpi -= is_told;
    }
    pthread_mutex_unlock(&lock);
    return is_told;
}

static void forget(MPI_Errhandler errhandler)
{
    if (release(errhandler, 0))
        NEXT(MPI_Errhandler_free)(&errhandler);
}

void errhandler_inherit(struct file *file)
{
    MPI_Errhandler errhandler = has_inherited ? inherited : MPI_ERRORS_RETURN;
    refer(errhandler);
    file->errhandler = errhandler;
}

void errhandler_drop(struct file *file)
{
    forget(file->errhandler);
}

/* Calls the error handler of a file that is open, or (NULL) of what happens without one. Returns the code as the handler leaves it. */
static int call_handler(struct file *file, int code, const char *function)
{
    MPI_Errhandler errhandler = file ? file->errhandler : has_inherited ? inherited : MPI_ERRORS_RETURN;
    MPI_File_errhandler_function *call = NULL;
    MPI_File handle = file ? handle_of(file) : MPI_FILE_NULL;

    if (errhandler == MPI_ERRORS_RETURN)
        return code;
    pthread_mutex_lock(&lock);
    struct remembered *found = remembered(errhandler);
    if (found)
        call = found->function;
    pthread_mutex_unlock(&lock);
    if (call) {
        call(&handle, &code);
    } else {
        char words[MPI_MAX_ERROR_STRING] = "";
        int length;
        PMPI_Error_string(code, words, &length);
        fprintf(stderr, "ccpfs-mpiio: %s: %s: %s\n", function, file ? file->path : "a file", words);
        PMPI_Abort(file ? file->comm : MPI_COMM_WORLD, code);
    }
    return code;
}

int fail(struct file *file, int code, const char *function)
{
    if (code != MPI_SUCCESS) {
        /* Another rank's failure has no words here. */
        told = known;
        if (known.code != code)
            told.words[0] = 0;
        told.code = code;
        told.function = function;
        code = call_handler(file, code, function);
    }
    known.code = MPI_SUCCESS;
    return code;
}

/* Codes are classes, so that programs that compare them directly work. What the last failure of this thread was about is added to its class. */
EXPORTED int MPI_Error_string(int code, char *string, int *length)
{
    int answer = NEXT(MPI_Error_string)(code, string, length);

    if (answer == MPI_SUCCESS && code == told.code && told.words[0] && *length < MPI_MAX_ERROR_STRING) {
        size_t room = (size_t)(MPI_MAX_ERROR_STRING - *length);
        int more = snprintf(string + *length, room, " (%s: %s)", told.function, told.words);
        *length += more < (int)room ? more : (int)room - 1;
    }
    return answer;
}

EXPORTED int MPI_File_create_errhandler(MPI_File_errhandler_function *function, MPI_Errhandler *errhandler)
{
    int code = NEXT(MPI_File_create_errhandler)(function, errhandler);

    if (code != MPI_SUCCESS)
        return code;
    pthread_mutex_lock(&lock);
    struct remembered *made = remember(*errhandler, function);
    if (made)
        made->references = made->of_mpi = 1;
    else
        code = MPI_ERR_NO_MEM;
    pthread_mutex_unlock(&lock);
    return code;
}

EXPORTED int MPI_Errhandler_free(MPI_Errhandler *errhandler)
{
    if (!errhandler || release(*errhandler, 1))
        return NEXT(MPI_Errhandler_free)(errhandler);
    *errhandler = MPI_ERRHANDLER_NULL;
    return MPI_SUCCESS;
}

EXPORTED int MPI_File_set_errhandler(MPI_File handle, MPI_Errhandler errhandler)
{
    struct file *file = file_of(handle);
    int is_ours;

    if (!file && handle != MPI_FILE_NULL)
        return NEXT(MPI_File_set_errhandler)(handle, errhandler);
    if (!file) {
        int code = NEXT(MPI_File_set_errhandler)(handle, errhandler);
        if (code != MPI_SUCCESS)
            return code;
    }
    is_ours = refer(errhandler);
    if (file && !is_ours)
        return fail(file, because(MPI_ERR_ARG, "no error handler of files"), "MPI_File_set_errhandler");
    MPI_Errhandler before = file ? file->errhandler : inherited;
    /* What MPI_FILE_NULL had before the first change has no reference of ours. */
    int is_referred = file || has_inherited;
    if (file) {
        file->errhandler = errhandler;
    } else {
        inherited = errhandler;
        has_inherited = 1;
    }
    if (is_referred)
        forget(before);
    return MPI_SUCCESS;
}

EXPORTED int MPI_File_get_errhandler(MPI_File handle, MPI_Errhandler *errhandler)
{
    struct file *file = file_of(handle);

    if (!file && handle == MPI_FILE_NULL && has_inherited) {
        refer(inherited);
        *errhandler = inherited;
        return MPI_SUCCESS;
    }
    if (!file) {
        /* A handle more, which MPI counts as well. */
        int code = NEXT(MPI_File_get_errhandler)(handle, errhandler);
        if (code == MPI_SUCCESS)
            refer_as(*errhandler, 1);
        return code;
    }
    refer(file->errhandler);
    *errhandler = file->errhandler;
    return MPI_SUCCESS;
}

EXPORTED int MPI_File_call_errhandler(MPI_File handle, int code)
{
    struct file *file = file_of(handle);

    if (!file)
        return NEXT(MPI_File_call_errhandler)(handle, code);
    call_handler(file, code, "MPI_File_call_errhandler");
    return MPI_SUCCESS;
}

ALSO_PROFILING(MPI_Error_string)
ALSO_PROFILING(MPI_File_create_errhandler)
ALSO_PROFILING(MPI_Errhandler_free)
ALSO_PROFILING(MPI_File_set_errhandler)
ALSO_PROFILING(MPI_File_get_errhandler)
ALSO_PROFILING(MPI_File_call_errhandler)
