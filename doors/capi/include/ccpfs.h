/*
 * ccpfs.h: the C interface of ccPFS, a burst-buffer parallel file system.
 *
 * Link with -lccpfs (libccpfs.so), or with libccpfs.a and -lpthread -ldl -lm.
 *
 * Conventions are those of POSIX: a call that fails returns -1 (or NULL) and sets errno; ccpfs_error_message() says
 * more. Paths are paths of the namespace directory, absolute or relative to the working directory. A handle is a small
 * positive number of this library, not a descriptor of the kernel; it has no file offset.
 *
 * Every function may be called by several threads at once, also on the same handle. A read or write is atomic: no
 * other read or write, of any process, sees a part of it. What a write returned for is seen by every read, of any
 * process, that starts later.
 *
 * After fork(), the child has no handles of its parent; it opens its own.
 *
 * Do not use it in a program that runs under libccpfs_preload.so; there, use the calls of the C library.
 */
#ifndef CCPFS_H
#define CCPFS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Reads the configuration: the file at config_path, or, when that is NULL, the one that the environment variable
 * CCPFS_CONFIG names. Optional: the first call that needs the configuration does it with NULL. No server is asked.
 *
 * EINVAL: the configuration cannot be used. EALREADY: this process has read it before. Others: as open(2) of the
 * namespace directory.
 */
int ccpfs_init(const char *config_path);

/*
 * Closes all handles, sends everything that was written to the servers, and ends all connections. ccpfs_init() may be
 * called again afterwards. Also done when the process returns from main() or calls exit(); there, errors are lost.
 *
 * EIO, ENOSPC and others: some data could not be stored.
 */
int ccpfs_finalize(void);

/*
 * Opens a file and returns a handle. flags: O_RDONLY, O_WRONLY or O_RDWR, with any of O_CREAT, O_EXCL, O_TRUNC,
 * O_APPEND (every write goes to the end of the file, wherever other processes have moved it), O_SYNC and O_DSYNC (every
 * write waits as fsync does); others are ignored. mode: permissions of a file that is created, less the umask; it is
 * never left out.
 *
 * Errors as of open(2); EMFILE: 65,535 handles are open; EIO: not a file of ccPFS, or servers cannot be used.
 */
int ccpfs_open(const char *path, int flags, mode_t mode);

/*
 * As ccpfs_open; a file that is created gets stripe_count stripes (1 to 2048) in units of stripe_bytes (4 KiB to
 * 1 TiB, a multiple of 4 KiB). A file that exists keeps its layout.
 *
 * EINVAL: the layout is out of range.
 */
int ccpfs_open_striped(const char *path, int flags, mode_t mode, uint32_t stripe_count, uint64_t stripe_bytes);

/*
 * Closes a handle; waits for calls on it that other threads have begun. What was written is with the servers
 * afterwards (not necessarily on their devices; see ccpfs_fsync), unless the configuration says otherwise.
 *
 * EBADF; EIO, ENOSPC and others: data written earlier could not be stored. The handle is closed in any case.
 */
int ccpfs_close(int handle);

/*
 * Reads up to count bytes at offset (at most 2,147,479,552); fewer only at the end of the file, where it returns 0.
 * preadv fills several buffers, in one atomic read; at most 1024.
 *
 * EBADF: no handle, or not open for reading. EINVAL: negative offset, or too much. EIO: a server cannot be used.
 */
ssize_t ccpfs_pread(int handle, void *buffer, size_t count, off_t offset);
ssize_t ccpfs_preadv(int handle, const struct iovec *buffers, int buffer_count, off_t offset);

/*
 * Writes count bytes at offset (at most 2,147,479,552), or at the end of the file with O_APPEND. Returns count.
 * pwritev writes several buffers, in one atomic write; at most 1024.
 *
 * EBADF: no handle, or not open for writing. EINVAL, EFBIG: offset or amount out of range. EIO, ENOSPC and others: also
 * for data written earlier, once.
 */
ssize_t ccpfs_pwrite(int handle, const void *buffer, size_t count, off_t offset);
ssize_t ccpfs_pwritev(int handle, const struct iovec *buffers, int buffer_count, off_t offset);

/*
 * Writes count bytes at the end of the file, wherever other processes have moved it. Returns count. When offset is not
 * NULL, it is set to where the bytes were put.
 *
 * As ccpfs_pwrite.
 */
ssize_t ccpfs_append(int handle, const void *buffer, size_t count, off_t *offset);

/* Bytes of a file, and where they are, or shall be put, in memory. */
struct ccpfs_part {
    uint64_t offset;
    void *memory;
    size_t length;
};

/*
 * Reads or writes part_count parts, in their order; each part is atomic, all together are not. Reads stop at the first byte
 * behind the end of the file. Returns the bytes of all parts, at most 2^63 - 1; of a part at most 2,147,479,552. O_APPEND is not heeded.
 *
 * As ccpfs_pread and ccpfs_pwrite. After an error some parts may have been written.
 */
ssize_t ccpfs_read_parts(int handle, const struct ccpfs_part *parts, size_t part_count);
ssize_t ccpfs_write_parts(int handle, const struct ccpfs_part *parts, size_t part_count);

/*
 * The same as one atomic operation: every other read or write, of any process, sees all parts or none. Parts may have any order; those
 * of a write must not overlap. Returns as above; reads also stop at the end of the file in the order of the parts.
 *
 * As above; EINVAL: parts of a write overlap.
 */
ssize_t ccpfs_read_atomic(int handle, const struct ccpfs_part *parts, size_t part_count);
ssize_t ccpfs_write_atomic(int handle, const struct ccpfs_part *parts, size_t part_count);

/*
 * How the locks of atomic operations of several parts are asked for through this handle. kind: "datatype" (one description for each stripe),
 * "list" (64 pieces a request), "posix" (a request for each piece). protocol: "alt-try", "one-try", "two-phase". Without it, as
 * the configuration says.
 *
 * EBADF; EINVAL: no such kind or protocol.
 */
int ccpfs_lock_style(int handle, const char *kind, const char *protocol);

/*
 * An advice to take a lock ahead of time: on the bytes from start up to, not including, end. (Lustre's lla_end is inclusive in practice: who
 * ports a call of llapi_ladvise adds 1.) result: CCPFS_ADVICE_SENT (asked for, granted if nobody else has a lock in the way),
 * _DIFFERENT (this client has a lock that covers more), _SAME (it has this one), or a negative errno.
 */
struct ccpfs_advice {
    uint64_t start;
    uint64_t end;
    int result;
};
#define CCPFS_ADVICE_SENT 0
#define CCPFS_ADVICE_DIFFERENT 1
#define CCPFS_ADVICE_SAME 2

/*
 * Asks for locks, for writing if write is not 0, else for reading, in the background: waits for nobody, and nobody is asked to give
 * anything up. 1 to 1024 advices. Returns 0 and sets the results.
 *
 * EBADF; EINVAL: an empty extent, or a count out of range.
 */
int ccpfs_lockahead(int handle, struct ccpfs_advice *advices, size_t advice_count, int write);

/*
 * Whether locks of this handle's operations may cover more than they need, where nobody else has any. They may, unless expand is 0 here.
 *
 * EBADF.
 */
int ccpfs_lock_expansion(int handle, int expand);

/*
 * Brings bytes into the cache that will be read soon; writes back and forgets bytes that will not be needed soon.
 *
 * EBADF, EINVAL (negative), and as ccpfs_pread and ccpfs_flush.
 */
int ccpfs_will_read(int handle, off_t start, off_t length);
int ccpfs_dont_need(int handle, off_t start, off_t length);

/*
 * Group locks: between lock and unlock, all who have the same group (not 0) read and write the file without any other lock, and nobody else
 * can. Among the members nothing is atomic, and what one writes others may not see before all have left the group; bytes that only one
 * member touches are safe. Unlocking flushes. Others wait, without end.
 *
 * EBADF; EINVAL: 0, or the handle has a group lock (unlock: has no such one); EBUSY: this process is in another group of the file; and as ccpfs_flush.
 */
int ccpfs_group_lock(int handle, uint64_t group);
int ccpfs_group_unlock(int handle, uint64_t group);

/*
 * Sends what was written to the servers: it survives the end of this process.
 *
 * EBADF; EIO, ENOSPC and others: this or earlier data could not be stored.
 */
int ccpfs_flush(int handle);

/*
 * Waits until what was written is on the servers' devices: it survives a crash of this process and of the servers. Both
 * names do the same.
 *
 * As ccpfs_flush.
 */
int ccpfs_fsync(int handle);
int ccpfs_fdatasync(int handle);

/*
 * Sets the size of a file; what is added reads as zeros.
 *
 * EBADF, EINVAL (negative, or not open for writing), EFBIG; truncate also as open(2) for writing.
 */
int ccpfs_ftruncate(int handle, off_t size);
int ccpfs_truncate(const char *path, off_t size);

/*
 * Makes the file at least offset + length bytes long; what is added reads as zeros. Reserves no space at servers.
 *
 * EBADF, EINVAL (negative, a length of 0, or not open for writing), EFBIG.
 */
int ccpfs_allocate(int handle, off_t offset, off_t length);

/*
 * The layout of a file: its stripes, and the bytes of a unit. Either pointer may be NULL.
 *
 * EBADF.
 */
int ccpfs_layout(int handle, uint32_t *stripe_count, uint64_t *stripe_bytes);

/*
 * Attributes of a file as stat(2) gives them. The size takes in what other processes have written and still keep in
 * their caches. stat follows a symbolic link, lstat does not. Directories and other files are answered, too.
 *
 * As fstat(2), stat(2); EIO: a server cannot be used.
 */
int ccpfs_fstat(int handle, struct stat *attributes);
int ccpfs_stat(const char *path, struct stat *attributes);
int ccpfs_lstat(const char *path, struct stat *attributes);

/*
 * Removes a name; the data go with the last name.
 *
 * As unlink(2).
 */
int ccpfs_unlink(const char *path);

/*
 * Renames a file or directory inside the namespace; a file that has the new name is removed.
 *
 * As rename(2).
 */
int ccpfs_rename(const char *from, const char *to);

/*
 * Whether a path leads to a file of ccPFS, or would if a file were created there: 1 or 0. Symbolic links are followed. No server is asked.
 *
 * As ccpfs_init, when that has not been done.
 */
int ccpfs_is_path(const char *path);

/*
 * What the client of this process has counted since it started: "lock_requests" (sent to servers), "lock_hits" (locks found in the
 * cache), "bytes_written" and others, which ccpfs bench prints.
 *
 * EINVAL: nothing of that name is counted.
 */
int ccpfs_statistic(const char *name, uint64_t *value);

/*
 * Why the last failed call of this thread failed, in words; an empty string when none has failed. Valid until the next
 * call of this thread that fails.
 */
const char *ccpfs_error_message(void);

/* The version of this library, as "1.2.3". */
const char *ccpfs_version(void);

#ifdef __cplusplus
}
#endif

#endif /* CCPFS_H */
