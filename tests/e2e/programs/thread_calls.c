/*
 * thread_calls: threads open, duplicate, write, read and close files of their own and one that all share, while another
 * thread forks children that do the same and start programs. Argument: a directory of the namespace. Prints "all right" or
 * the first thing that is not.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition)                                                                                            \
    do {                                                                                                            \
        if (!(condition)) {                                                                                         \
            fprintf(stderr, "line %d: %s: %s\n", __LINE__, #condition, strerror(errno));                            \
            _exit(1);                                                                                               \
        }                                                                                                           \
    } while (0)

enum { THREADS = 6, ROUNDS = 150, CHILDREN = 40, RECORD = 100 };

static const char *ns;
static int shared;

static void use_own_file(long who, int round)
{
    char path[4096], text[RECORD], back[RECORD];
    snprintf(path, sizeof path, "%s/own-%d-%ld", ns, (int)getpid(), who);
    memset(text, (int)('a' + (who + round) % 26), sizeof text);
    int fd = open(path, O_CREAT | O_RDWR | O_TRUNC | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && write(fd, text, sizeof text) == sizeof text);
    int copy = dup(fd);
    CHECK(copy >= 0 && close(fd) == 0 && lseek(copy, 0, SEEK_SET) == 0);
    CHECK(read(copy, back, sizeof back) == sizeof back && !memcmp(text, back, sizeof back));
    struct stat found;
    CHECK(fstat(copy, &found) == 0 && found.st_size == sizeof text);
    int ordinary = open("/dev/null", O_WRONLY | O_CLOEXEC);
    CHECK(ordinary >= 0 && dup2(ordinary, copy) == copy && close(ordinary) == 0);
    CHECK(write(copy, text, 1) == 1 && close(copy) == 0);
    CHECK(stat(path, &found) == 0 && found.st_size == sizeof text);
    if (round % 10 == 0)
        CHECK(unlink(path) == 0);
}

static void *work(void *argument)
{
    long who = (long)argument;
    char record[RECORD];
    memset(record, (int)('A' + who), sizeof record);
    for (int round = 0; round < ROUNDS; round++) {
        use_own_file(who, round);
        CHECK(write(shared, record, sizeof record) == sizeof record);
    }
    return NULL;
}

static void *fork_children(void *argument)
{
    (void)argument;
    for (int n = 0; n < CHILDREN; n++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            char record[RECORD];
            memset(record, 'Z', sizeof record);
            use_own_file(n, n);
            CHECK(write(shared, record, sizeof record) == sizeof record);
            if (n % 2)
                execl("/bin/sh", "sh", "-c", "exit 7", (char *)NULL);
            _exit(7);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
    }
    return NULL;
}

/* Every record is whole, and there are as many of each writer as it wrote. */
static void check_shared(void)
{
    int counts[256] = {0};
    char record[RECORD];
    for (off_t at = 0; pread(shared, record, sizeof record, at) == sizeof record; at += sizeof record) {
        for (int i = 1; i < RECORD; i++)
            CHECK(record[i] == record[0]);
        counts[(unsigned char)record[0]]++;
    }
    for (int who = 0; who < THREADS; who++)
        CHECK(counts['A' + who] == ROUNDS);
    CHECK(counts['Z'] == CHILDREN);
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    ns = argv[1];
    char path[4096];
    snprintf(path, sizeof path, "%s/shared", ns);
    CHECK((shared = open(path, O_CREAT | O_RDWR | O_TRUNC, 0600)) >= 0);
    pthread_t threads[THREADS + 1];
    for (long i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
    CHECK(pthread_create(&threads[THREADS], NULL, fork_children, NULL) == 0);
    for (int i = 0; i <= THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    check_shared();
    puts("all right");
    return 0;
}
