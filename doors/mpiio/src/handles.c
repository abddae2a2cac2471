/*
 * handles.c: the table of the files that are ours. Their MPI_File is a pointer to our structure; whatever is not in the table is
 * MPI's own.
 */
#include "layer.h"

#include <stdlib.h>

/* Fortran's handles of our files begin here; MPI's own are small numbers or carry other marks. */
enum { FORTRAN_FIRST = 0x2CC00000 };

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static struct file **files;
static int used, room;

struct file *file_of(MPI_File handle)
{
    struct file *found = NULL;

    pthread_rwlock_rdlock(&lock);
    for (int slot = 0; slot < used; slot++)
        if (files[slot] && (void *)files[slot] == (void *)handle)
            found = files[slot];
    pthread_rwlock_unlock(&lock);
    return found;
}

MPI_File handle_of(struct file *file)
{
    return (MPI_File)(void *)file;
}

void file_register(struct file *file)
{
    int slot = 0;

    pthread_rwlock_wrlock(&lock);
    while (slot < used && files[slot])
        slot++;
    if (slot == room) {
        int more = room ? 2 * room : 16;
        struct file **grown = realloc(files, (size_t)more * sizeof(struct file *));
        if (!grown)
            abort();
        files = grown;
        room = more;
    }
    if (slot == used)
        used++;
    files[slot] = file;
    file->slot = slot;
    pthread_rwlock_unlock(&lock);
}

void file_unregister(struct file *file)
{
    pthread_rwlock_wrlock(&lock);
    files[file->slot] = NULL;
    pthread_rwlock_unlock(&lock);
}

EXPORTED MPI_Fint MPI_File_c2f(MPI_File handle)
{
    struct file *file = file_of(handle);
    return file ? FORTRAN_FIRST + file->slot : NEXT(MPI_File_c2f)(handle);
}

EXPORTED MPI_File MPI_File_f2c(MPI_Fint number)
{
    struct file *found = NULL;

    pthread_rwlock_rdlock(&lock);
    if (number >= FORTRAN_FIRST && number - FORTRAN_FIRST < used)
        found = files[number - FORTRAN_FIRST];
    pthread_rwlock_unlock(&lock);
    return found ? handle_of(found) : NEXT(MPI_File_f2c)(number);
}

ALSO_PROFILING(MPI_File_c2f)
ALSO_PROFILING(MPI_File_f2c)
