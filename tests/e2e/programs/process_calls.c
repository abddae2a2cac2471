/*
 * process_calls: what C programs do with descriptors, streams, forks and new programs. Arguments: a directory of the
 * namespace, and one outside. Prints "all right" or the first thing that is not.
 */
#define _GNU_SOURCE
#include <aio.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

#define CHECK(condition)                                                                                            \
    do {                                                                                                            \
        if (!(condition)) {                                                                                         \
            fprintf(stderr, "line %d: %s: %s\n", __LINE__, #condition, strerror(errno));                            \
            exit(1);                                                                                                \
        }                                                                                                           \
    } while (0)

static const char *ns, *out;

static const char *in(const char *directory, const char *name)
{
    static char paths[4][PATH_MAX];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, PATH_MAX, "%s/%s", directory, name);
    return path;
}

static void expect(const char *path, const char *text)
{
    char found[4096] = "";
    int fd = open(path, O_RDONLY);
    CHECK(fd >= 0);
    ssize_t length = read(fd, found, sizeof found - 1);
    CHECK(length >= 0 && close(fd) == 0);
    if (strcmp(found, text)) {
        fprintf(stderr, "%s holds \"%s\" and not \"%s\"\n", path, found, text);
        exit(1);
    }
}

static void wait_for(pid_t child)
{
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void use_streams(void)
{
    const char *path = in(ns, "streams");
    FILE *f = fopen(path, "w+");
    CHECK(f && fileno(f) > 2);
    CHECK(fprintf(f, "%d %s\n", 42, "words") == 9 && fputs("second\n", f) >= 0);
    CHECK(fseek(f, 3, SEEK_SET) == 0 && fgetc(f) == 'w' && ftell(f) == 4);
    CHECK(fseek(f, 0, SEEK_END) == 0 && ftell(f) == 16 && fflush(f) == 0);
    struct stat found;
    CHECK(fstat(fileno(f), &found) == 0 && found.st_size == 16);
    CHECK(fclose(f) == 0);
    CHECK((f = fopen(path, "a")) && fputs("third\n", f) >= 0 && fclose(f) == 0);
    expect(path, "42 words\nsecond\nthird\n");
    char *line = NULL;
    size_t room = 0;
    CHECK((f = fopen(path, "r")) && getline(&line, &room, f) == 9 && !strcmp(line, "42 words\n"));
    CHECK(freopen(in(ns, "streams"), "r", f) != NULL);
    CHECK(!fopen(in(ns, "nothing"), "r") && errno == ENOENT);
    int fd = open(path, O_RDWR);
    CHECK((f = fdopen(fd, "r+")) && fileno(f) == fd && fgetc(f) == '4' && fclose(f) == 0);
    CHECK(close(fd) == -1 && errno == EBADF);
    free(line);
}

static void use_standard_streams(void)
{
    /* A child, so that this program's own streams stay as they are. */
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        FILE *kept = stdout;
        fputs("before ", stdout); /* Goes where the descriptor leads when it is flushed. */
        int saved = dup(1), fd = open(in(ns, "standard"), O_CREAT | O_TRUNC | O_WRONLY, 0600);
        CHECK(dup2(fd, 1) == 1 && close(fd) == 0);
        printf("printf ");
        fflush(stdout);
        CHECK(write(1, "write ", 6) == 6);
        CHECK(system("printf 'system '") == 0);
        CHECK(dup2(saved, 1) == 1 && stdout == kept);
        CHECK(freopen(in(ns, "standard"), "a", stdout) != NULL);
        puts("freopen");
        close(0);
        CHECK(open(in(ns, "standard"), O_RDONLY) == 0);
        char word[10];
        CHECK(fflush(stdout) == 0 && scanf("%9s", word) == 1 && !strcmp(word, "before"));
        fputs("end\n", stdout); /* Not flushed: the end of the process does it. */
        exit(0);
    }
    wait_for(child);
    expect(in(ns, "standard"), "before printf write system freopen\nend\n");
}

static int lay_out(char *to, size_t room, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    int length = vsnprintf(to, room, format, list);
    va_end(list);
    return length;
}

static void start_programs(void)
{
    const char *path = in(ns, "programs");
    char append[PATH_MAX + 40];
    CHECK(lay_out(append, sizeof append, "echo $1 $2 $3 $4 $5 $6 >> %s", path) > 0);
    char *list[] = {"sh", "-c", append, "sh", "execv", "2", "3", "4", "5", "6", NULL};
    for (int how = 0; how < 7; how++) {
        pid_t child = how % 2 ? vfork() : fork();
        CHECK(child >= 0);
        if (child == 0) {
            switch (how) {
            case 0: execl("/bin/sh", "sh", "-c", append, "sh", "execl", "2", "3", "4", "5", "6", (char *)NULL); break;
            case 1: execlp("sh", "sh", "-c", append, "sh", "execlp", (char *)NULL); break;
            case 2: execle("/bin/sh", "sh", "-c", append, "sh", "execle", "2", (char *)NULL, environ); break;
            case 3: execv("/bin/sh", list); break;
            case 4: execvp("sh", list); break;
            case 5: execve("/bin/sh", list, (char *[]){"A=b", NULL}); break;
            case 6: execvpe("sh", list, (char *[]){"A=b", NULL}); break;
            }
            _exit(1);
        }
        wait_for(child);
    }
    pid_t child;
    CHECK(posix_spawn(&child, "/bin/sh", NULL, NULL, (char *[]){"sh", "-c", append, "sh", "spawn", NULL}, environ) == 0);
    wait_for(child);
    CHECK(execl("/nonexistent", "x", (char *)NULL) == -1 && errno == ENOENT);
    expect(path, "execl 2 3 4 5 6\nexeclp\nexecle 2\nexecv 2 3 4 5 6\nexecv 2 3 4 5 6\nexecv 2 3 4 5 6\n"
                 "execv 2 3 4 5 6\nspawn\n");
}

static void pass_descriptors_on(void)
{
    int fd = open(in(ns, "passed"), O_CREAT | O_RDWR, 0600), appending = open(in(ns, "passed2"), O_CREAT | O_WRONLY | O_APPEND, 0600);
    int hidden = open(in(ns, "passed"), O_RDWR | O_CLOEXEC);
    CHECK(fd >= 0 && appending >= 0 && hidden >= 0 && write(fd, "one ", 4) == 4 && write(appending, "1 ", 2) == 2);
    char script[200];
    snprintf(script, sizeof script, "printf two >&%d; printf 2 >&%d; ! { : >&%d; } 2>/dev/null", fd, appending, hidden);
    pid_t child;
    posix_spawn_file_actions_t actions;
    CHECK(posix_spawn_file_actions_init(&actions) == 0);
    CHECK(posix_spawn_file_actions_adddup2(&actions, fd, 1) == 0);
    CHECK(posix_spawn(&child, "/bin/bash", &actions, NULL, (char *[]){"bash", "-c", script, NULL}, environ) == 0);
    wait_for(child);
    CHECK(posix_spawn(&child, "/bin/echo", &actions, NULL, (char *[]){"echo", " three", NULL}, environ) == 0);
    wait_for(child);
    CHECK(write(fd, "four", 4) == 4 && close(fd) == 0 && close(appending) == 0 && close(hidden) == 0);
    expect(in(ns, "passed"), "one two three\nfour");
    expect(in(ns, "passed2"), "1 2");
}

static void copy_without_reading(void)
{
    char text[100000], back[100000];
    memset(text, 'c', sizeof text);
    int from = open(in(ns, "from"), O_CREAT | O_RDWR, 0600), to = open(in(out, "to"), O_CREAT | O_TRUNC | O_RDWR, 0600);
    CHECK(from >= 0 && to >= 0 && write(from, text, sizeof text) == sizeof text);
    off_t at = 0;
    CHECK(sendfile(to, from, &at, sizeof text) == sizeof text && at == sizeof text);
    CHECK(pread(to, back, sizeof back, 0) == sizeof back && !memcmp(text, back, sizeof back));
    off_t into = 5;
    at = 10;
    CHECK(copy_file_range(to, &at, from, &into, 1000, 0) == 1000 && at == 1010 && into == 1005);
    CHECK(mmap(NULL, 10, PROT_READ, MAP_SHARED, from, 0) == MAP_FAILED && errno == ENODEV);
    CHECK(close(from) == 0 && close(to) == 0);
}

static void use_asynchronous_calls(void)
{
    int fd = open(in(ns, "aio"), O_CREAT | O_RDWR, 0600);
    char text[] = "asynchronous", back[sizeof text] = "";
    struct aiocb request = {.aio_fildes = fd, .aio_buf = text, .aio_nbytes = sizeof text, .aio_offset = 7};
    request.aio_sigevent.sigev_notify = SIGEV_NONE;
    const struct aiocb *list[] = {&request};
    CHECK(aio_write(&request) == 0 && aio_suspend(list, 1, NULL) == 0);
    CHECK(aio_error(&request) == 0 && aio_return(&request) == sizeof text);
    request.aio_buf = back;
    CHECK(aio_read(&request) == 0 && aio_suspend(list, 1, NULL) == 0 && aio_return(&request) == sizeof text);
    CHECK(!strcmp(text, back) && close(fd) == 0);
}

static void print_to_descriptors(void)
{
    int fd = open(in(ns, "print"), O_CREAT | O_RDWR, 0600);
    CHECK(dprintf(fd, "%d %s %c %ld %x %d %d %s\n", 1, "two", '3', 4L, 5, 6, 7, "eight") == 22);
    CHECK(dprintf(fd, "%.1f %d %.2f %s %g %g %g %g %g %g %g\n", 1.5, 2, 3.25, "x", 4., 5., 6., 7., 8., 9., 10.) == 28);
    CHECK(close(fd) == 0);
    expect(in(ns, "print"), "1 two 3 4 5 6 7 eight\n1.5 2 3.25 x 4 5 6 7 8 9 10\n");
    CHECK((fd = open(in(out, "print"), O_CREAT | O_RDWR, 0600)) >= 0);
    CHECK(dprintf(fd, "%d %.1f\n", 1, 2.5) == 6 && close(fd) == 0);
    expect(in(out, "print"), "1 2.5\n");
}

static void make_temporary_files(void)
{
    char template[PATH_MAX];
    snprintf(template, sizeof template, "%s/temporary-%s", ns, "\130\130\130\130\130\130"); /* Six times X. */
    int fd = mkstemp(template);
    CHECK(fd >= 0 && write(fd, "abc", 3) == 3 && close(fd) == 0);
    expect(template, "abc");
    CHECK(remove(template) == 0 && access(template, F_OK) == -1);
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    ns = argv[1];
    out = argv[2];
    use_streams();
    use_standard_streams();
    start_programs();
    pass_descriptors_on();
    copy_without_reading();
    use_asynchronous_calls();
    print_to_descriptors();
    make_temporary_files();
    puts("all right");
    return 0;
}
