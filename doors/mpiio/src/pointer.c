/*
 * pointer.c: the shared file pointer.
 *
 * Eight bytes in an ordinary hidden file beside the file, changed under a lock of the open file description. All nodes see the namespace directory
 * and its byte locks, so no rank has to be inside MPI for another one to go on. The file exists from the first use to the
 * collective close.
 */
#define _GNU_SOURCE
#include "layer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

static int pointer_open(struct file *file)
{
    const struct system_calls *calls = system_calls();

    pthread_mutex_lock(&file->lock);
    if (file->pointer_descriptor < 0)
        file->pointer_descriptor = calls->open(file->pointer_path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    pthread_mutex_unlock(&file->lock);
    return file->pointer_descriptor < 0 ? class_of(errno) : MPI_SUCCESS;
}

static int lock_whole(int descriptor, short kind)
{
    struct flock wanted = {.l_type = kind, .l_whence = SEEK_SET, .l_start = 0, .l_len = 0};
    int answer;

    do
        answer = system_calls()->fcntl(descriptor, F_OFD_SETLKW, &wanted);
    while (answer < 0 && errno == EINTR);
    return answer < 0 ? class_of(errno) : MPI_SUCCESS;
}

/* Sets it to `value` plus `amount`, or, with `keep`, to what it is plus `amount`. */
static int change(struct file *file, int keep, MPI_Offset amount, MPI_Offset *before)
{
    const struct system_calls *calls = system_calls();
    int64_t value = 0;
    int code = pointer_open(file);

    if (code != MPI_SUCCESS)
        return code;
    /* Threads of a process share the description: the mutex is theirs. */
    pthread_mutex_lock(&file->lock);
    code = lock_whole(file->pointer_descriptor, F_WRLCK);
    if (code == MPI_SUCCESS) {
        ssize_t got = calls->pread(file->pointer_descriptor, &value, sizeof value, 0);
        if (got != sizeof value)
            value = file->pointer_preset;
        if (got < 0)
            code = class_of(errno);
        *before = value;
        if (__builtin_add_overflow(keep ? value : 0, amount, &value) && code == MPI_SUCCESS)
            code = MPI_ERR_ARG;
        if (code == MPI_SUCCESS && (got != sizeof value || value != *before) &&
            calls->pwrite(file->pointer_descriptor, &value, sizeof value, 0) != sizeof value)
            code = class_of(errno);
        lock_whole(file->pointer_descriptor, F_UNLCK);
    }
    pthread_mutex_unlock(&file->lock);
    return code;
}

int pointer_add(struct file *file, MPI_Offset amount, MPI_Offset *before)
{
    return change(file, 1, amount, before);
}

int pointer_set(struct file *file, MPI_Offset value)
{
    MPI_Offset before;
    return change(file, 0, value, &before);
}

int pointer_reset(struct file *file)
{
    const struct system_calls *calls = system_calls();
    int descriptor = file->pointer_descriptor;

    if (descriptor < 0)
        descriptor = calls->open(file->pointer_path, O_RDWR | O_CLOEXEC);
    if (descriptor < 0)
        return errno == ENOENT ? MPI_SUCCESS : class_of(errno);
    file->pointer_descriptor = descriptor;
    return pointer_set(file, 0);
}

/* After a barrier: nobody uses it any more. */
void pointer_close(struct file *file)
{
    if (file->pointer_descriptor >= 0)
        system_calls()->close(file->pointer_descriptor);
    file->pointer_descriptor = -1;
    if (file->rank == 0 && file->pointer_path)
        system_calls()->unlink(file->pointer_path);
}
