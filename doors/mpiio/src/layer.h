/*
 * layer.h: what the parts of the MPI-IO layer know of each other.
 *
 * The layer stands between a program and MPI (through MPI's profiling interface). It serves files that lie on ccPFS itself and
 * passes all others on. docs/mpiio.md says what users may rely on.
 */
#ifndef CCPFS_MPIIO_LAYER_H
#define CCPFS_MPIIO_LAYER_H

#include <mpi.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

/* Functions that programs see; everything else is hidden. */
#define EXPORTED __attribute__((visibility("default")))

/*
 * A function of MPI itself. Ours have both of its names, because MPICH's bindings for Fortran 2008 call the second one; so do other
 * profiling layers in front of this one.
 */
#define NEXT(name)                                                                                                          \
    ({                                                                                                                      \
        static __typeof__(&name) found_;                                                                                    \
        if (!found_)                                                                                                        \
            found_ = (__typeof__(&name))next_symbol("P" #name);                                                             \
        found_;                                                                                                             \
    })
#define ALSO_PROFILING(name) ALSO_PROFILING_(name, P##name)
#define ALSO_PROFILING_(name, second) extern __typeof__(name) second __attribute__((alias(#name), visibility("default")));
/* library.c. Ends the process if MPI has no such function. */
void *next_symbol(const char *name);

/* MPI 4 has functions with large counts. Where there are none, types with large counts do not exist either. */
#if MPI_VERSION >= 4
#define HAVE_LARGE_COUNTS 1
#else
#define HAVE_LARGE_COUNTS 0
#endif

/* ---- library.c: libccpfs.so, loaded when the first file needs it ---- */

/* A piece of a file and of memory; the same as in ccpfs.h. */
struct ccpfs_part {
    uint64_t offset;
    void *memory;
    size_t length;
};

/* A lock to be asked for; the same as in ccpfs.h. */
struct ccpfs_advice {
    uint64_t start;
    uint64_t end;
    int result;
};

/* Functions of libccpfs.so; ccpfs.h says what they do. */
struct library {
    int (*is_path)(const char *path);
    int (*open)(const char *path, int flags, mode_t mode);
    int (*open_striped)(const char *path, int flags, mode_t mode, uint32_t stripe_count, uint64_t stripe_bytes);
    int (*close)(int handle);
    ssize_t (*write_parts)(int handle, const struct ccpfs_part *parts, size_t count);
    ssize_t (*read_parts)(int handle, const struct ccpfs_part *parts, size_t count);
    ssize_t (*write_atomic)(int handle, const struct ccpfs_part *parts, size_t count);
    ssize_t (*read_atomic)(int handle, const struct ccpfs_part *parts, size_t count);
    int (*lock_style)(int handle, const char *kind, const char *protocol);
    int (*lockahead)(int handle, struct ccpfs_advice *advices, size_t count, int write);
    int (*lock_expansion)(int handle, int expand);
    int (*group_lock)(int handle, uint64_t group);
    int (*group_unlock)(int handle, uint64_t group);
    int (*layout)(int handle, uint32_t *stripe_count, uint64_t *stripe_bytes);
    int (*allocate)(int handle, off_t offset, off_t length);
    int (*flush)(int handle);
    int (*fsync)(int handle);
    int (*ftruncate)(int handle, off_t size);
    int (*fstat)(int handle, struct stat *attributes);
    int (*unlink)(const char *path);
    int (*statistic)(const char *name, uint64_t *value);
    const char *(*error_message)(void);
};

/* The library, or NULL if it cannot be loaded (said once on the standard error). */
const struct library *library(void);
/*
 * Whether a path leads to a file of ccPFS, or would if it were created: 1 or 0, or -1 if ccPFS is configured and cannot be used; then nobody
 * can tell, and MPI itself would write into what is there in place of the file. Loads nothing when CCPFS_CONFIG is not set.
 */
int is_ccpfs_path(const char *path);

/* Functions of the C library itself, whatever is loaded in front of it. */
struct system_calls {
    int (*open)(const char *path, int flags, ...);
    int (*close)(int descriptor);
    ssize_t (*pread)(int descriptor, void *to, size_t count, off_t offset);
    ssize_t (*pwrite)(int descriptor, const void *from, size_t count, off_t offset);
    int (*fcntl)(int descriptor, int command, ...);
    int (*unlink)(const char *path);
};
const struct system_calls *system_calls(void);

/* ---- flatten.c: datatypes as lists of pieces ---- */

/* Bytes relative to the start of a datatype, or of a file. */
struct piece {
    int64_t offset;
    int64_t length;
};

/* A datatype: its pieces in the order of its type map, neighbours joined. */
struct flat {
    struct piece *pieces;
    /* How many bytes come before each piece. */
    int64_t *before;
    size_t count;
    size_t room;
    /* Bytes of all pieces. */
    int64_t bytes;
    /* How far apart copies lie. */
    int64_t extent;
};

/* How basic types lie in memory or in a file. */
enum representation { NATIVE, EXTERNAL32 };

/* Returns an MPI error class. The result is to be freed also after an error. */
int flatten(MPI_Datatype datatype, struct flat *flat);
void flat_free(struct flat *flat);
/* Whether a datatype is named, so that it must not be freed. */
int is_named(MPI_Datatype datatype);
/* Whether all basic types in it have the same size in external32 as here. */
int is_external32_sized(MPI_Datatype datatype);

/* ---- cursor.c ---- */

/* A place in copies of a datatype that follow each other. */
struct cursor {
    const struct flat *flat;
    /* Where the first copy starts. */
    int64_t base;
    int64_t copy;
    size_t piece;
    /* Bytes of the piece that have been passed. */
    int64_t inside;
    /* Bytes that are left. */
    int64_t left;
};

/* The cursor at byte `position` of what the copies select, for `length` bytes. */
struct cursor cursor_at(const struct flat *flat, int64_t base, int64_t position, int64_t length);
/* The next bytes that lie side by side, at most `most`; a length of 0 at the end. */
struct piece cursor_next(struct cursor *cursor, int64_t most);
/* What is left is one piece. */
int cursor_is_contiguous(const struct cursor *cursor);

/* ---- hints.c ---- */

enum { HINT_VALUE_MAX = 256 };

/* What hints decide; the same on all ranks of a file, except `strings`. */
struct hints {
    int64_t cb_buffer_bytes;
    int64_t cb_nodes;
    /* 0 no, 1 yes, 2 as seems best. */
    int64_t cb_read, cb_write;
    int64_t nodes_multiplier;
    int64_t stripe_count, stripe_bytes;
    int64_t start_device;
    int64_t permissions;
    int64_t lock_ahead_write, lock_ahead_read, lock_ahead_extents;
    int64_t write_lock_mode;
};

struct hint_strings;
struct hint_strings *hint_strings_new(void);
void hint_strings_free(struct hint_strings *strings);
/* Takes what an info object and the environment say into the strings; unknown keys are ignored. */
void hints_take(struct hint_strings *strings, MPI_Info info, const char *path);
const char *hint(const struct hint_strings *strings, const char *key);
void hint_set(struct hint_strings *strings, const char *key, const char *value);
void hint_set_number(struct hint_strings *strings, const char *key, int64_t value);
/* The numbers of the strings. */
void hints_read(const struct hint_strings *strings, struct hints *hints);
/* A new info object with all of them. Returns an MPI error class. */
int hints_to_info(const struct hint_strings *strings, MPI_Info *info);
void hints_display(const struct hint_strings *strings, const char *path);

/* ---- handles.c: open files ---- */

enum pattern_kind { INDEPENDENT, COLLECTIVE };

/* What is counted and timed for one direction; see statistics.c. */
struct tally {
    int64_t independent_calls, collective_calls, two_phase_calls;
    int64_t system_calls, stripe_sized_calls, bytes;
    int64_t gaps, gap_bytes, last_end;
    int64_t ahead_extents, ahead_hits, ahead_misses;
    int64_t aggregators_one, aggregators_half, aggregators_most, aggregators_all;
    /* Seconds. */
    double total, wait, exchange, assemble, device;
    double began;
};

struct file {
    int handle;
    int slot;
    MPI_Comm comm;
    int rank, ranks;
    int amode;
    char *path;
    int is_atomic;
    struct hint_strings *strings;
    struct hints hints;

    /* The view. */
    MPI_Offset displacement;
    MPI_Datatype etype, filetype;
    int64_t etype_bytes;
    struct flat tile;
    /* Offsets never go back from one piece to the next. */
    int is_monotone;
    enum representation representation;
    char datarep[MPI_MAX_DATAREP_STRING];

    /* The individual file pointer, in etypes; with `lock`. */
    pthread_mutex_t lock;
    MPI_Offset position;

    /* The shared file pointer: a file beside this one. */
    char *pointer_path;
    int pointer_descriptor;
    /* Where it is before its first use. */
    MPI_Offset pointer_preset;

    /* The group of group locks, and whether this rank is in it. */
    uint64_t group;
    int is_member;
    /* What this rank has asked locks for ahead of time, as an aggregator. */
    int64_t ahead_start, ahead_end;

    /* A split collective operation under way: which, and its answer. */
    const char *split;
    int64_t split_bytes;

    MPI_Errhandler errhandler;
    struct tally reads, writes;
    uint64_t lock_requests, lock_hits;
    double opened;
};

/* The file of a handle; NULL if it is MPI's own. */
struct file *file_of(MPI_File handle);
MPI_File handle_of(struct file *file);
void file_register(struct file *file);
void file_unregister(struct file *file);

/* ---- errors.c ---- */

/* The MPI error class of an errno. */
int class_of(int error);
/* The same, of what the library has just failed with; its own words are kept. */
int class_of_library(void);
/* Keeps what is wrong for MPI_Error_string, which tells it of the next code that `fail` is called with. Returns `code`. */
int because(int code, const char *words);
#define SPLIT_UNDER_WAY "a split collective operation is under way"
#define OPEN_FOR_READING "the file is open for reading only"
#define OPEN_SEQUENTIAL "the file is open in sequential mode"
/* Calls the error handler of a file (NULL: of files that are not open) and returns the code. */
int fail(struct file *file, int code, const char *function);
void errhandler_inherit(struct file *file);
void errhandler_drop(struct file *file);

/* ---- access.c: transfers of one rank ---- */

/* Memory of a transfer: copies of a datatype. */
struct memory {
    char *base;
    struct flat flat;
    int64_t bytes;
    int is_contiguous;
};

int memory_open(struct memory *memory, const void *buffer, MPI_Count count, MPI_Datatype datatype);
void memory_close(struct memory *memory);
/* Copies `length` bytes from byte `position` on; `out` from memory to the buffer, otherwise back. */
void memory_copy(const struct memory *memory, int64_t position, int64_t length, char *buffer, int out);

/* A transfer: where in the view (in bytes of its stream), and which memory. */
struct transfer {
    struct file *file;
    int is_write;
    int64_t position;
    struct memory memory;
};

/* Does it alone. `done` is the number of bytes. Returns an MPI error class. */
int transfer_alone(struct transfer *transfer, int64_t *done);
/* One call of the library; `done` as above. */
int parts_call(struct file *file, int is_write, int is_atomic, const struct ccpfs_part *parts, size_t count, int64_t *done);
/* Does it together with all other ranks; collective.c. */
int transfer_together(struct transfer *transfer, int64_t *done);

/* ---- locks.c ---- */

int locks_ahead(const struct file *file);
void lock_ahead(struct file *file, int64_t offset, int64_t unit_bytes, int64_t aggregators);
int locks_set_style(struct file *file);
/* All ranks of a file together. Return an MPI error class: the first the same on all of them, the second the rank's own. */
int group_join(struct file *file);
int group_leave(struct file *file);

/* ---- pointer.c: the shared file pointer ---- */

/* Adds to it; what it was before. Returns an MPI error class. */
int pointer_add(struct file *file, MPI_Offset amount, MPI_Offset *before);
int pointer_set(struct file *file, MPI_Offset value);
/* Sets it to 0 if anybody has used it; rank 0 alone, while no rank uses it. */
int pointer_reset(struct file *file);
void pointer_close(struct file *file);

/* ---- statistics.c ---- */

double now(void);
struct tally *tally_of(struct file *file, int is_write);
void count_call(struct file *file, int is_write, int64_t offset, int64_t bytes);
/* What the environment asks for; collective over the ranks of the file. */
void statistics_report(struct file *file);
int is_wanted(const char *ours, const char *theirs);

/* ---- external.c ---- */

/* `count` copies of a datatype, as external32 has them, side by side. Returns an MPI error class. */
int external_pack(const void *buffer, MPI_Count count, MPI_Datatype datatype, char *packed, int64_t bytes);
/* Back, as many copies as `bytes` make up. */
int external_unpack(const char *packed, int64_t bytes, void *buffer, MPI_Count count, MPI_Datatype datatype);

/* ---- view.c ---- */

/* Sets the view that a file has when it is opened. Returns an MPI error class. */
int view_preset(struct file *file);
/* Where an offset in etypes is, in bytes of the view's stream; MPI_ERR_ARG if it, or the `bytes` there, lie farther than offsets reach. */
int view_place(const struct file *file, MPI_Offset etypes, int64_t bytes, int64_t *position);
void view_free(struct file *file);

/* ---- files.c ---- */

/* The same answer for all ranks: the highest error class of any. */
int agreed(struct file *file, int code);
/* Takes hints for an open file, all ranks together. Returns an MPI error class. */
int hints_agree(struct file *file, MPI_Info info);

#endif
