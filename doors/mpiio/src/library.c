/*
 * library.c: the library of ccPFS, and the C library below whatever is preloaded.
 */
#define _GNU_SOURCE
#include "layer.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct library functions;
static int is_loaded;
static pthread_once_t loading = PTHREAD_ONCE_INIT;
static struct system_calls calls;
static pthread_once_t resolving = PTHREAD_ONCE_INIT;

/* Beside this library first, then where the system looks. */
static void *open_library(void)
{
    /*
     * Its own references to the C library come before those of the program: under the preload library it must not be caught
     * itself.
     */
    int how = RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND;
    const char *name = getenv("CCPFS_LIBRARY");
    Dl_info self;
    char beside[4096];
    void *found;

    if (name && *name)
        return dlopen(name, how);
    if (dladdr((void *)&open_library, &self) && self.dli_fname) {
        const char *slash = strrchr(self.dli_fname, '/');
        int folder = slash ? (int)(slash - self.dli_fname) + 1 : 0;
        if (snprintf(beside, sizeof beside, "%.*slibccpfs.so", folder, self.dli_fname) < (int)sizeof beside) {
            found = dlopen(beside, how);
            if (found)
                return found;
        }
    }
    return dlopen("libccpfs.so", how);
}

static void *symbol(void *from, const char *name, int *missing)
{
    void *found = dlsym(from, name);
    if (!found) {
        fprintf(stderr, "ccpfs-mpiio: libccpfs.so has no %s: it is of another version\n", name);
        *missing = 1;
    }
    return found;
}

static void load(void)
{
    int missing = 0;
    void *from = open_library();

    if (!from) {
        fprintf(stderr, "ccpfs-mpiio: libccpfs.so cannot be loaded: %s\n", dlerror());
        return;
    }
#define TAKE(field, name) functions.field = (__typeof__(functions.field))symbol(from, name, &missing)
    TAKE(is_path, "ccpfs_is_path");
    TAKE(open, "ccpfs_open");
    TAKE(open_striped, "ccpfs_open_striped");
    TAKE(close, "ccpfs_close");
    TAKE(write_parts, "ccpfs_write_parts");
    TAKE(read_parts, "ccpfs_read_parts");
    TAKE(write_atomic, "ccpfs_write_atomic");
    TAKE(read_atomic, "ccpfs_read_atomic");
    TAKE(lock_style, "ccpfs_lock_style");
    TAKE(lockahead, "ccpfs_lockahead");
    TAKE(lock_expansion, "ccpfs_lock_expansion");
    TAKE(group_lock, "ccpfs_group_lock");
    TAKE(group_unlock, "ccpfs_group_unlock");
    TAKE(layout, "ccpfs_layout");
    TAKE(allocate, "ccpfs_allocate");
    TAKE(flush, "ccpfs_flush");
    TAKE(fsync, "ccpfs_fsync");
    TAKE(ftruncate, "ccpfs_ftruncate");
    TAKE(fstat, "ccpfs_fstat");
    TAKE(unlink, "ccpfs_unlink");
    TAKE(statistic, "ccpfs_statistic");
    TAKE(error_message, "ccpfs_error_message");
#undef TAKE
    is_loaded = !missing;
}

const struct library *library(void)
{
    pthread_once(&loading, load);
    return is_loaded ? &functions : NULL;
}

int is_ccpfs_path(const char *path)
{
    static int has_told;
    const char *config = getenv("CCPFS_CONFIG");
    const struct library *ccpfs;
    int answer;

    if (!config || !*config || !path)
        return 0;
    ccpfs = library();
    answer = ccpfs ? ccpfs->is_path(path) : -1;
    if (answer < 0 && !has_told) {
        has_told = 1;
        fprintf(stderr, "ccpfs-mpiio: ccPFS cannot be used: %s\n", ccpfs ? ccpfs->error_message() : "its library is missing");
    }
    return answer;
}

void *next_symbol(const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);
    if (!found) {
        fprintf(stderr, "ccpfs-mpiio: MPI has no %s\n", name);
        abort();
    }
    return found;
}

static void resolve(void)
{
    void *libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);

    if (!libc)
        libc = RTLD_NEXT;
    calls.open = (__typeof__(calls.open))dlsym(libc, "open64");
    calls.close = (__typeof__(calls.close))dlsym(libc, "close");
    calls.pread = (__typeof__(calls.pread))dlsym(libc, "pread64");
    calls.pwrite = (__typeof__(calls.pwrite))dlsym(libc, "pwrite64");
    calls.fcntl = (__typeof__(calls.fcntl))dlsym(libc, "fcntl64");
    calls.unlink = (__typeof__(calls.unlink))dlsym(libc, "unlink");
    if (!calls.fcntl)
        calls.fcntl = (__typeof__(calls.fcntl))dlsym(libc, "fcntl");
}

const struct system_calls *system_calls(void)
{
    pthread_once(&resolving, resolve);
    return &calls;
}
