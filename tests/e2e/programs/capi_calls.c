/*
 * capi_calls: every function of ccpfs.h once, and its errors. Argument: a directory of the namespace. Prints "all right"
 * or the first thing that is not.
 */
#include <ccpfs.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition)                                                                                            \
    do {                                                                                                            \
        if (!(condition)) {                                                                                         \
            printf("line %d: %s: errno %d, %s\n", __LINE__, #condition, errno, ccpfs_error_message());              \
            exit(1);                                                                                                \
        }                                                                                                           \
    } while (0)

#define FAILS(call, number) CHECK((call) == -1 && errno == (number) && ccpfs_error_message()[0] != '\0')

enum { BLOCK = 47008, BLOCKS = 8, WRITERS = 4 };

static char file[4096], other[4096];

static void *write_blocks(void *argument)
{
    long writer = (long)argument;
    char block[BLOCK];
    int handle = ccpfs_open(file, O_WRONLY, 0);
    CHECK(handle > 0);
    for (long i = 0; i < BLOCKS; i++) {
        memset(block, (int)('a' + writer), sizeof block);
        off_t offset = (i * WRITERS + writer) * (off_t)BLOCK;
        CHECK(ccpfs_pwrite(handle, block, sizeof block, offset) == BLOCK);
    }
    CHECK(ccpfs_close(handle) == 0);
    return NULL;
}

static void check_blocks(void)
{
    char block[BLOCK];
    int handle = ccpfs_open(file, O_RDONLY, 0);
    CHECK(handle > 0);
    for (long i = 0; i < BLOCKS * WRITERS; i++) {
        CHECK(ccpfs_pread(handle, block, sizeof block, i * (off_t)BLOCK) == BLOCK);
        for (int k = 0; k < BLOCK; k++)
            CHECK(block[k] == 'a' + i % WRITERS);
    }
    CHECK(ccpfs_pread(handle, block, sizeof block, BLOCKS * WRITERS * (off_t)BLOCK) == 0);
    FAILS(ccpfs_pwrite(handle, block, 1, 0), EBADF);
    CHECK(ccpfs_close(handle) == 0);
}

static void write_from_threads(void)
{
    int handle = ccpfs_open_striped(file, O_CREAT | O_EXCL | O_RDWR, 0640, 2, 65536);
    CHECK(handle > 0);
    FAILS(ccpfs_open(file, O_CREAT | O_EXCL | O_RDWR, 0640), EEXIST);
    FAILS(ccpfs_open_striped(other, O_CREAT | O_RDWR, 0640, 0, 65536), EINVAL);
    pthread_t threads[WRITERS];
    for (long i = 0; i < WRITERS; i++)
        CHECK(pthread_create(&threads[i], NULL, write_blocks, (void *)i) == 0);
    for (int i = 0; i < WRITERS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(ccpfs_flush(handle) == 0 && ccpfs_fsync(handle) == 0 && ccpfs_fdatasync(handle) == 0);
    struct stat attributes;
    CHECK(ccpfs_fstat(handle, &attributes) == 0 && attributes.st_size == BLOCK * BLOCKS * WRITERS);
    CHECK((attributes.st_mode & 0777) == 0640 && S_ISREG(attributes.st_mode));
    CHECK(ccpfs_close(handle) == 0);
    FAILS(ccpfs_close(handle), EBADF);
    FAILS(ccpfs_fsync(handle), EBADF);
}

static void use_vectors(void)
{
    char one[3] = "ab", two[4] = "cde", back_one[4] = "", back_two[3] = "";
    struct iovec out[] = {{one, 2}, {two, 3}}, in[] = {{back_one, 3}, {back_two, 2}};
    int handle = ccpfs_open(other, O_CREAT | O_RDWR | O_TRUNC, 0600);
    CHECK(handle > 0);
    CHECK(ccpfs_pwritev(handle, out, 2, 10) == 5);
    CHECK(ccpfs_preadv(handle, in, 2, 10) == 5);
    CHECK(!memcmp(back_one, "abc", 3) && !memcmp(back_two, "de", 2));
    CHECK(ccpfs_pread(handle, back_one, 3, 0) == 3 && !memcmp(back_one, "\0\0\0", 3));
    FAILS(ccpfs_pwritev(handle, out, -1, 0), EINVAL);
    FAILS(ccpfs_pread(handle, back_one, 1, -1), EINVAL);
    FAILS(ccpfs_pread(handle, NULL, 1, 0), EFAULT);
    off_t end = 0;
    CHECK(ccpfs_append(handle, "tail", 4, &end) == 4 && end == 15);
    CHECK(ccpfs_append(handle, "end", 3, NULL) == 3);
    struct stat attributes;
    CHECK(ccpfs_stat(other, &attributes) == 0 && attributes.st_size == 22);
    CHECK(ccpfs_ftruncate(handle, 12) == 0);
    CHECK(ccpfs_lstat(other, &attributes) == 0 && attributes.st_size == 12);
    CHECK(ccpfs_truncate(other, 1 << 20) == 0);
    CHECK(ccpfs_fstat(handle, &attributes) == 0 && attributes.st_size == 1 << 20);
    CHECK(ccpfs_close(handle) == 0);
    handle = ccpfs_open(other, O_WRONLY | O_APPEND | O_SYNC, 0);
    CHECK(handle > 0);
    CHECK(ccpfs_pwrite(handle, "x", 1, 0) == 1);
    CHECK(ccpfs_fstat(handle, &attributes) == 0 && attributes.st_size == (1 << 20) + 1);
    FAILS(ccpfs_pread(handle, back_one, 1, 0), EBADF);
    CHECK(ccpfs_close(handle) == 0);
}

static void use_names(void)
{
    struct stat attributes;
    CHECK(ccpfs_rename(other, file) == 0);
    FAILS(ccpfs_stat(other, &attributes), ENOENT);
    CHECK(ccpfs_stat(file, &attributes) == 0 && attributes.st_size == (1 << 20) + 1);
    FAILS(ccpfs_open(other, O_RDONLY, 0), ENOENT);
    FAILS(ccpfs_open(NULL, O_RDONLY, 0), EFAULT);
    FAILS(ccpfs_open("", O_RDONLY, 0), ENOENT);
}

static void use_fork(void)
{
    int handle = ccpfs_open(file, O_RDWR, 0);
    CHECK(handle > 0);
    CHECK(ccpfs_pwrite(handle, "parent", 6, 0) == 6);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        char text[7] = "";
        FAILS(ccpfs_pread(handle, text, 6, 0), EBADF);
        int own = ccpfs_open(file, O_RDWR, 0);
        CHECK(ccpfs_pread(own, text, 6, 0) == 6 && !strcmp(text, "parent"));
        CHECK(ccpfs_pwrite(own, "child!", 6, 0) == 6);
        exit(0); /* Without closing: the end of the process flushes. */
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    char text[7] = "";
    CHECK(ccpfs_pread(handle, text, 6, 0) == 6 && !strcmp(text, "child!"));
    CHECK(ccpfs_close(handle) == 0);
}

static void use_parts(void)
{
    enum { PARTS = 30, PART = 700 };
    static char out[PARTS][PART], in[PARTS][PART], piece[PART];
    struct ccpfs_part parts[PARTS], back[PARTS];
    struct ccpfs_part overlapping[2] = {{0, out, 10}, {9, out, 10}}, mine[1] = {{3, piece, 5}};
    int handle = ccpfs_open(other, O_RDWR | O_CREAT | O_TRUNC, 0666);

    CHECK(handle > 0);
    for (int i = 0; i < PARTS; i++) {
        memset(out[i], 'a' + i % 26, PART);
        /* The order of offsets is not that of memory. */
        parts[i] = (struct ccpfs_part){.offset = (uint64_t)(PARTS - i) * 2 * PART, .memory = out[i], .length = PART};
        back[i] = (struct ccpfs_part){.offset = parts[i].offset, .memory = in[i], .length = PART};
    }
    CHECK(ccpfs_write_atomic(handle, parts, PARTS) == PARTS * PART);
    CHECK(ccpfs_read_atomic(handle, back, PARTS) == PARTS * PART && !memcmp(in, out, sizeof in));
    memset(in, 0, sizeof in);
    CHECK(ccpfs_read_parts(handle, back, PARTS) == PARTS * PART && !memcmp(in, out, sizeof in));
    CHECK(ccpfs_pread(handle, piece, PART, 3 * PART) == PART && piece[0] == 0 && piece[PART - 1] == 0);
    CHECK(ccpfs_lock_style(handle, "list", "two-phase") == 0);
    FAILS(ccpfs_lock_style(handle, "none", "two-phase"), EINVAL);
    memset(out, 'z', sizeof out);
    CHECK(ccpfs_write_parts(handle, parts, PARTS) == PARTS * PART);
    CHECK(ccpfs_write_atomic(handle, parts, PARTS) == PARTS * PART);
    CHECK(ccpfs_read_atomic(handle, back, PARTS) == PARTS * PART && !memcmp(in, out, sizeof in));
    FAILS(ccpfs_write_atomic(handle, overlapping, 2), EINVAL);
    CHECK(ccpfs_read_atomic(handle, overlapping, 2) == 20);
    CHECK(ccpfs_write_parts(handle, mine, 1) == 5 && ccpfs_write_parts(handle, NULL, 0) == 0);
    /* The end of the file: behind the first part in memory, which is the last one there. */
    CHECK(ccpfs_ftruncate(handle, PARTS * 2 * PART + 10) == 0);
    CHECK(ccpfs_read_atomic(handle, back, PARTS) == 10);
    CHECK(ccpfs_read_parts(handle, back, PARTS) == 10);
    CHECK(ccpfs_close(handle) == 0);
    CHECK(ccpfs_unlink(other) == 0);
}

static void use_advice(void)
{
    struct ccpfs_advice advices[2] = {{0, 4096, -1}, {4096, 8192, -1}};
    uint32_t stripe_count = 0;
    uint64_t stripe_bytes = 0, requests = 0;
    struct stat attributes;
    int handle = ccpfs_open(other, O_RDWR | O_CREAT, 0666);

    CHECK(ccpfs_is_path(other) == 1 && ccpfs_is_path("/dev/null") == 0 && ccpfs_is_path("/nonexistent/file") == 0);
    CHECK(ccpfs_layout(handle, &stripe_count, &stripe_bytes) == 0 && stripe_count == 2 && stripe_bytes == 65536);
    CHECK(ccpfs_layout(handle, NULL, NULL) == 0);
    CHECK(ccpfs_lockahead(handle, advices, 2, 1) == 0);
    CHECK(advices[0].result == CCPFS_ADVICE_SENT && advices[1].result == CCPFS_ADVICE_SENT);
    FAILS(ccpfs_lockahead(handle, advices, 0, 1), EINVAL);
    advices[1].end = 4096;
    FAILS(ccpfs_lockahead(handle, advices, 2, 0), EINVAL);
    CHECK(ccpfs_lock_expansion(handle, 0) == 0 && ccpfs_lock_expansion(handle, 1) == 0);
    CHECK(ccpfs_pwrite(handle, "hello", 5, 0) == 5);
    CHECK(ccpfs_will_read(handle, 0, 5) == 0 && ccpfs_dont_need(handle, 0, 5) == 0);
    FAILS(ccpfs_will_read(handle, -1, 5), EINVAL);
    FAILS(ccpfs_group_lock(handle, 0), EINVAL);
    CHECK(ccpfs_group_lock(handle, 7) == 0);
    FAILS(ccpfs_group_unlock(handle, 8), EINVAL);
    CHECK(ccpfs_group_unlock(handle, 7) == 0);
    CHECK(ccpfs_allocate(handle, 100, 900) == 0);
    CHECK(ccpfs_fstat(handle, &attributes) == 0 && attributes.st_size == 1000);
    FAILS(ccpfs_allocate(handle, 100, 0), EINVAL);
    CHECK(ccpfs_statistic("lock_requests", &requests) == 0 && requests > 0);
    FAILS(ccpfs_statistic("of no meaning", &requests), EINVAL);
    CHECK(ccpfs_close(handle) == 0);
    CHECK(ccpfs_unlink(other) == 0);
}

static void *make_and_delete(void *unused)
{
    for (int i = 0; i < 500; i++) {
        int handle = ccpfs_open(other, O_RDWR | O_CREAT, 0666);
        CHECK(handle > 0 && ccpfs_close(handle) == 0 && ccpfs_unlink(other) == 0);
    }
    return unused;
}

/* A name is one of ours in each moment of a file's life, also in that of its end. */
static void ask_while_a_file_comes_and_goes(void)
{
    pthread_t thread;

    CHECK(pthread_create(&thread, NULL, make_and_delete, NULL) == 0);
    while (pthread_tryjoin_np(thread, NULL) != 0)
        CHECK(ccpfs_is_path(other) == 1);
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    snprintf(file, sizeof file, "%s/capi-file", argv[1]);
    snprintf(other, sizeof other, "%s/capi-other", argv[1]);
    CHECK(ccpfs_version()[0] >= '0' && ccpfs_version()[0] <= '9');
    CHECK(ccpfs_error_message()[0] == '\0');
    FAILS(ccpfs_init("/nonexistent/ccpfs.toml"), EINVAL);
    CHECK(ccpfs_init(NULL) == 0);
    FAILS(ccpfs_init(NULL), EALREADY);
    write_from_threads();
    check_blocks();
    use_vectors();
    use_names();
    use_parts();
    use_advice();
    ask_while_a_file_comes_and_goes();
    use_fork();
    CHECK(ccpfs_unlink(file) == 0);
    FAILS(ccpfs_unlink(file), ENOENT);
    CHECK(ccpfs_finalize() == 0);
    CHECK(ccpfs_finalize() == 0);
    puts("all right");
    return 0;
}
