// Handlers of signals that leave a call for good, and that use files themselves; waits that they interrupt.
//
//   handlers DIRECTORY
//
// Prints the same on every file system, or hangs, or says what is wrong and ends with 1.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum { JUMPS = 300, LINES = 300 };

#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            printf("line %d: %s: %s\n", __LINE__, #condition, strerror(errno)); \
            exit(1); \
        } \
    } while (0)

static sigjmp_buf again;
static volatile sig_atomic_t jumps;
static volatile sig_atomic_t lines;
static int log_fd;

static void every(long microseconds) {
    struct itimerval timer = {{0, microseconds}, {0, microseconds}};
    CHECK(setitimer(ITIMER_REAL, &timer, NULL) == 0);
}

static void handle(void (*handler)(int)) {
    struct sigaction action = {.sa_handler = handler};
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
}

static void leave(int number) {
    (void)number;
    jumps++;
    siglongjmp(again, 1);
}

static void tell(int number) {
    (void)number;
    int kept = errno;
    if (write(log_fd, "handler\n", 8) == 8) lines++;
    errno = kept;
}

static void interrupt(int number) {
    (void)number;
}

// All of these may be left by a handler.
static void use(int fd) {
    char bytes[3000];
    struct stat found;
    memset(bytes, 7, sizeof bytes);
    for (off_t at = 0;; at = (at + 2999) % 200000) {
        CHECK(pwrite(fd, bytes, sizeof bytes, at) == sizeof bytes);
        CHECK(fsync(fd) == 0);
        CHECK(pread(fd, bytes, sizeof bytes, at / 2) == sizeof bytes);
        CHECK(fstat(fd, &found) == 0 && stat("left", &found) == 0);
    }
}

static void calls_that_are_left(void) {
    int fd = open("left", O_CREAT | O_RDWR, 0644);
    CHECK(fd >= 0);
    handle(leave);
    if (sigsetjmp(again, 1) == 0) every(1000);
    if (jumps < JUMPS) use(fd);
    signal(SIGALRM, SIG_IGN);
    every(0);
    char bytes[8] = "";
    CHECK(pwrite(fd, "written", 7, 100000) == 7 && fsync(fd) == 0);
    CHECK(pread(fd, bytes, 7, 100000) == 7 && strcmp(bytes, "written") == 0);
    CHECK(close(fd) == 0);
    printf("calls were left\n");
}

static void handlers_that_write(void) {
    log_fd = open("log", O_CREAT | O_RDWR | O_APPEND, 0644);
    CHECK(log_fd >= 0);
    handle(tell);
    every(1000);
    int written = 0;
    while (written < LINES || lines < LINES) {
        ssize_t count = write(log_fd, "program\n", 8);
        CHECK(count == 8);
        written++;
        CHECK(written % 50 != 0 || fsync(log_fd) == 0);
    }
    signal(SIGALRM, SIG_IGN);
    every(0);
    struct stat found;
    CHECK(fstat(log_fd, &found) == 0 && found.st_size == 8 * ((off_t)written + lines));
    CHECK(close(log_fd) == 0);
    printf("handlers have written\n");
}

static void waits_that_end(void) {
    int fd = open("locked", O_CREAT | O_RDWR, 0644), ready[2], done[2];
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    char byte = 0;
    CHECK(fd >= 0 && pipe(ready) == 0 && pipe(done) == 0);
    fflush(stdout);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(fcntl(fd, F_SETLK, &lock) == 0);
        CHECK(write(ready[1], &byte, 1) == 1);
        close(done[1]);
        _exit(read(done[0], &byte, 1) != 0);
    }
    CHECK(read(ready[0], &byte, 1) == 1);
    handle(interrupt);
    every(20000); // More than once, lest the first comes before the wait.
    CHECK(fcntl(fd, F_SETLKW, &lock) == -1 && errno == EINTR);
    CHECK(mkfifo("fifo", 0644) == 0);
    CHECK(open("fifo", O_RDONLY) == -1 && errno == EINTR);
    char bytes[100000] = "";
    CHECK(pwrite(fd, bytes, sizeof bytes, 0) == sizeof bytes && lseek(fd, 0, SEEK_SET) == 0);
    int full[2];
    ssize_t count = 1;
    CHECK(pipe(full) == 0);
    while (count > 0) count = sendfile(full[1], fd, NULL, 50000);
    CHECK(count == -1 && errno == EINTR);
    every(0);
    close(done[1]);
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    printf("waits have ended\n");
}

int main(int count, char **arguments) {
    CHECK(count == 2 && chdir(arguments[1]) == 0);
    calls_that_are_left();
    handlers_that_write();
    waits_that_end();
    return 0;
}
