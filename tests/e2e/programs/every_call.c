// Calls each family of functions by which a program can reach a file, and prints what it is told. The same lines must
// come out on an ordinary directory and on ccPFS.
#define _GNU_SOURCE
#include <aio.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <ftw.h>
#include <glob.h>
#include <linux/fs.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <utime.h>

extern char **environ;

static const char *family;

static void say(const char *what, long result) {
    int saved = errno;
    if (result < 0)
        printf("%s: %s = %ld %s\n", family, what, result, strerrorname_np(saved));
    else
        printf("%s: %s = %ld\n", family, what, result);
}
#define SAY(call) do { errno = 0; long result_ = (long)(call); say(#call, result_); } while (0)

static void show(const char *path) {
    char text[200];
    int fd = open(path, O_RDONLY);
    ssize_t count = fd < 0 ? -1 : read(fd, text, sizeof text);
    printf("%s: %s holds ", family, path);
    for (ssize_t at = 0; at < count; at++)
        printf(text[at] >= 32 && text[at] < 127 ? "%c" : "\\%d", text[at]);
    printf(" (%zd)\n", count);
    if (fd >= 0)
        close(fd);
}

static int fill(const char *path, const char *text) {
    int fd = open(path, O_CREAT | O_TRUNC | O_RDWR, 0644);
    if (write(fd, text, strlen(text)) != (ssize_t)strlen(text))
        say("write", -1);
    return fd;
}

static long size_of(const char *path) {
    struct stat found;
    return stat(path, &found) < 0 ? -1 : (long)found.st_size;
}

static void opening(void) {
    family = "opening";
    int fd;
    SAY((fd = open("o", O_CREAT | O_EXCL | O_RDWR, 0640)) >= 0);
    SAY(open("o", O_CREAT | O_EXCL | O_RDWR, 0640));
    SAY(fcntl(fd, F_GETFL) & (O_ACCMODE | O_APPEND));
    SAY(write(fd, "hello", 5));
    close(fd);
    SAY(open("o", O_RDONLY | O_DIRECTORY));
    SAY(open("missing", O_RDONLY));
    SAY(open("o/x", O_RDONLY));
    SAY(open(".", O_WRONLY));
    SAY(open("", O_RDONLY));
    SAY((fd = openat(AT_FDCWD, "o", O_WRONLY | O_APPEND)) >= 0);
    SAY(read(fd, &fd, 0));
    char byte;
    SAY(read(fd, &byte, 1));
    SAY(fcntl(fd, F_GETFL) & (O_ACCMODE | O_APPEND));
    SAY(fcntl(fd, F_SETFL, 0));
    SAY(pwrite(fd, "J", 1, 0));
    close(fd);
    show("o");
    SAY((fd = creat("o", 0600)) >= 0);
    close(fd);
    SAY(size_of("o"));
    SAY((fd = open("o", O_RDONLY)) >= 0);
    SAY(write(fd, "x", 1));
    SAY(ftruncate(fd, 1));
    close(fd);
    SAY(symlink("target", "sl"));
    SAY(open("sl", O_RDONLY));
    SAY(open("sl", O_RDONLY | O_NOFOLLOW));
    SAY((fd = open("sl", O_CREAT | O_WRONLY, 0600)) >= 0);
    close(fd);
    SAY(size_of("target"));
    int folder = open(".", O_RDONLY | O_DIRECTORY);
    SAY((fd = openat(folder, "at", O_CREAT | O_RDWR, 0600)) >= 0);
    close(fd);
    SAY((fd = open("at", O_PATH)) >= 0);
    struct stat found;
    SAY(fstat(fd, &found));
    SAY(found.st_size);
    SAY(read(fd, &byte, 1));
    close(fd);
    close(folder);
    SAY((fd = syscall(SYS_openat, AT_FDCWD, "sys", O_CREAT | O_RDWR, 0600)) >= 0);
    SAY(syscall(SYS_write, fd, "number", 6));
    SAY(syscall(SYS_pread64, fd, &byte, 1, 2));
    SAY(byte);
    SAY(syscall(SYS_lseek, fd, 0, SEEK_END));
    SAY(syscall(SYS_ftruncate, fd, 3));
    SAY(syscall(SYS_fstat, fd, &found));
    SAY(found.st_size);
    SAY(syscall(SYS_close, fd));
    SAY(syscall(SYS_close, fd));
    SAY(syscall(SYS_unlinkat, AT_FDCWD, "sys", 0));
    SAY(mknod("nod", S_IFREG | 0600, 0));
    SAY(mknod("nod", S_IFREG | 0600, 0));
    SAY(size_of("nod"));
    SAY(mkfifo("fifo", 0600));
    show("nod");
}

static void moving_bytes(void) {
    family = "bytes";
    int fd = fill("b", "0123456789");
    char one[8] = "", two[8] = "";
    struct iovec list[2] = {{one, 3}, {two, 4}};
    SAY(lseek(fd, 2, SEEK_SET));
    SAY(readv(fd, list, 2));
    printf("%s %s\n", one, two);
    SAY(lseek(fd, 0, SEEK_CUR));
    SAY(preadv(fd, list, 2, 8));
    SAY(preadv2(fd, list, 2, -1, 0));
    SAY(preadv2(fd, list, 2, 0, 0x4000));
    SAY(lseek(fd, 0, SEEK_CUR));
    struct iovec out[2] = {{"ab", 2}, {"cde", 3}};
    SAY(pwritev(fd, out, 2, 20));
    SAY(writev(fd, out, 2));
    SAY(lseek(fd, 0, SEEK_CUR));
    SAY(pwritev2(fd, out, 2, 0, RWF_APPEND));
    SAY(lseek(fd, 0, SEEK_CUR));
    SAY(pwritev2(fd, out, 2, -1, RWF_APPEND | RWF_DSYNC));
    SAY(lseek(fd, 0, SEEK_CUR));
    SAY(pwritev2(fd, out, 2, -1, RWF_SYNC));
    show("b");
    int less_than_none = -1;
    SAY(readv(fd, list, *(volatile int *)&less_than_none));
    SAY(pread(fd, one, 1, -1));
    SAY(pwrite(fd, one, 1, -1));
    SAY(write(fd, one, 0));
    SAY(read(fd, one, 5));
    SAY(lseek(fd, -1, SEEK_SET));
    SAY(lseek(fd, 0, 77));
    SAY(lseek(fd, 5, SEEK_END));
    SAY(ftruncate(fd, -1));
    SAY(ftruncate(fd, 4));
    SAY(truncate("b", 6));
    SAY(truncate("missing", 6));
    SAY(truncate(".", 6));
    show("b");
    SAY(fsync(fd));
    SAY(fdatasync(fd));
    SAY(syncfs(fd));
    SAY(sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE));
    SAY(posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL));
    SAY(posix_fadvise(fd, 0, 0, 99));
    SAY(readahead(fd, 0, 6));
    SAY(posix_fallocate(fd, 0, 100));
    SAY(size_of("b"));
    SAY(posix_fallocate(fd, 0, 0));
    SAY(fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 1000));
    SAY(size_of("b"));
    SAY(fallocate(fd, 0, -1, 10));
    SAY(pwrite(fd, "hole below", 10, 1 << 20));
    SAY(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 1 << 20));
    SAY(pread(fd, one, 4, 0));
    SAY(one[0]);
    SAY(lseek(fd, 0, SEEK_HOLE));
    SAY(lseek(fd, 0, SEEK_DATA) <= 1 << 20 && lseek(fd, 0, SEEK_DATA) > 0);
    SAY(lseek(fd, 1 << 20, SEEK_HOLE) > 1 << 20);
    SAY(lseek(fd, 2 << 20, SEEK_DATA));
    SAY(fallocate(fd, FALLOC_FL_ZERO_RANGE, 1 << 20, 4));
    SAY(pread(fd, one, 5, 1 << 20));
    SAY(one[0]);
    SAY(one[4]);
    SAY(fallocate(fd, FALLOC_FL_PUNCH_HOLE, 0, 10));
    SAY(ftruncate(fd, 100));
    int bytes = -1;
    SAY(lseek(fd, 10, SEEK_SET));
    SAY(ioctl(fd, FIONREAD, &bytes));
    SAY(bytes);
    SAY(dprintf(fd, "%d %s %.1f", 5, "five", 5.0));
    SAY(lseek(fd, 0, SEEK_CUR));
    struct pollfd asked = {fd, POLLIN | POLLOUT, 0};
    SAY(poll(&asked, 1, 0));
    SAY(asked.revents);
    close(fd);
    SAY(read(fd, one, 1));
    fd = open("b", O_WRONLY | O_TRUNC | O_SYNC);
    SAY(write(fd, "sync", 4));
    SAY(fallocate(fd, 0, 0, 8));
    close(fd);
    fd = open("b", O_RDONLY);
    SAY(posix_fallocate(fd, 0, 200));
    close(fd);
    show("b");
}

static void copies(void) {
    family = "copies";
    int from = fill("c1", "the quick brown fox"), to = fill("c2", "");
    loff_t at = 4, target = 2;
    SAY(copy_file_range(from, &at, to, &target, 5, 0));
    printf("%ld %ld\n", (long)at, (long)target);
    show("c2");
    SAY(lseek(from, 0, SEEK_SET));
    SAY(copy_file_range(from, NULL, to, NULL, 1000, 0));
    SAY(copy_file_range(from, NULL, to, NULL, 1000, 0));
    SAY(copy_file_range(from, NULL, to, NULL, 1, 1));
    at = 0;
    target = 3;
    SAY(copy_file_range(from, &at, from, &target, 10, 0));
    show("c2");
    SAY(lseek(from, 0, SEEK_SET));
    SAY(lseek(to, 0, SEEK_SET));
    SAY(sendfile(to, from, NULL, 9));
    off_t offset = 10;
    SAY(sendfile(to, from, &offset, 100));
    printf("%ld\n", (long)offset);
    show("c2");
    int ends[2];
    SAY(pipe(ends));
    SAY(lseek(from, 4, SEEK_SET));
    SAY(splice(from, NULL, ends[1], NULL, 5, 0));
    SAY(lseek(from, 0, SEEK_CUR));
    at = 0;
    SAY(splice(from, &at, ends[1], NULL, 3, 0));
    printf("%ld\n", (long)at);
    SAY(ftruncate(to, 0));
    SAY(lseek(to, 0, SEEK_SET));
    SAY(splice(ends[0], NULL, to, NULL, 100, 0));
    show("c2");
    SAY(splice(ends[0], NULL, to, NULL, 100, SPLICE_F_NONBLOCK));
    SAY(splice(from, NULL, to, NULL, 100, 0));
    at = 0;
    SAY(splice(ends[0], &at, to, NULL, 100, 0));
    close(ends[1]);
    SAY(splice(ends[0], NULL, to, NULL, 100, 0));
    close(ends[0]);
    char *mapped = mmap(NULL, 19, PROT_READ, MAP_PRIVATE, from, 0);
    SAY(mapped != MAP_FAILED && memcmp(mapped, "the quick brown fox", 20) == 0);
    munmap(mapped, 19);
    mapped = mmap(NULL, 19, PROT_READ | PROT_WRITE, MAP_PRIVATE, from, 0);
    mapped[0] = 'T';
    munmap(mapped, 19);
    SAY(mmap(NULL, 19, PROT_READ, MAP_PRIVATE, from, 7) == MAP_FAILED ? -1 : 0);
    close(from);
    from = open("c1", O_WRONLY);
    SAY(mmap(NULL, 19, PROT_READ, MAP_PRIVATE, from, 0) == MAP_FAILED ? -1 : 0);
    close(from);
    close(to);
    show("c1");
}

static int visits;
static int visit(const char *path, const struct stat *found, int flag) {
    if (flag == FTW_F)
        printf("ftw %s %ld\n", path, (long)found->st_size);
    visits++;
    return 0;
}
static int long_visit(const char *path, const struct stat *found, int flag, struct FTW *place) {
    if (flag == FTW_F && strcmp(path + place->base, "f1") == 0)
        printf("nftw %s %ld level %d\n", path, (long)found->st_size, place->level);
    return 0;
}
static int by_name(const FTSENT **one, const FTSENT **other) {
    return strcmp((*one)->fts_name, (*other)->fts_name);
}

static void looking(void) {
    family = "looking";
    mkdir("d", 0755);
    mkdir("d/e", 0755);
    close(fill("d/f1", "12345"));
    close(fill("d/e/f1", "1234567"));
    struct stat found;
    SAY(stat("d/f1", &found));
    SAY(found.st_size);
    SAY(found.st_nlink);
    SAY(S_ISREG(found.st_mode));
    symlink("f1", "d/sl");
    SAY(lstat("d/sl", &found));
    SAY(found.st_size);
    SAY(fstatat(AT_FDCWD, "d/sl", &found, 0));
    SAY(found.st_size);
    SAY(fstatat(AT_FDCWD, "d/sl", &found, 0x40000));
    int fd = open("d/f1", O_RDONLY);
    SAY(fstatat(fd, "", &found, AT_EMPTY_PATH));
    SAY(found.st_size);
    struct statx wide;
    SAY(statx(AT_FDCWD, "d/f1", AT_STATX_FORCE_SYNC, STATX_SIZE, &wide));
    SAY(wide.stx_size);
    SAY((wide.stx_mask & STATX_SIZE) != 0);
    SAY(statx(fd, "", AT_EMPTY_PATH, STATX_ALL, &wide));
    SAY(wide.stx_size);
    SAY(statx(AT_FDCWD, "missing", 0, STATX_ALL, &wide));
    close(fd);
    SAY(stat("d/f1", &found));
    SAY(statx(AT_FDCWD, "d/f1", 0, STATX_ALL, &wide));
    SAY(wide.stx_mtime.tv_sec == found.st_mtim.tv_sec && wide.stx_mtime.tv_nsec == found.st_mtim.tv_nsec);
    SAY(wide.stx_ctime.tv_sec == found.st_ctim.tv_sec && wide.stx_ctime.tv_nsec == found.st_ctim.tv_nsec);
    SAY(access("d/f1", R_OK | W_OK));
    SAY(access("d/f1", X_OK) == 0 ? 1 : -1);
    SAY(faccessat(AT_FDCWD, "missing", F_OK, 0));
    SAY(euidaccess("d/f1", R_OK));
    char name[4096], *end;
    SAY(readlink("d/sl", name, sizeof name));
    end = realpath("d/e/../sl", name);
    SAY(end && strcmp(strrchr(end, '/'), "/f1") == 0);
    visits = 0;
    SAY(ftw("d/e", visit, 4));
    SAY(visits);
    SAY(nftw("d", long_visit, 4, FTW_PHYS));
    SAY(nftw("d", long_visit, 4, FTW_PHYS | FTW_CHDIR | FTW_DEPTH));
    char *roots[] = {"d", NULL};
    for (int how = 0; how < 2; how++) {
        FTS *walk = fts_open(roots, FTS_PHYSICAL | (how ? FTS_NOCHDIR : 0), by_name);
        for (FTSENT *entry; (entry = fts_read(walk));) {
            if (entry->fts_info == FTS_F)
                printf("fts %s %ld\n", entry->fts_path, (long)entry->fts_statp->st_size);
            if (entry->fts_info == FTS_D)
                for (FTSENT *child = fts_children(walk, 0); child; child = child->fts_link)
                    if (child->fts_info == FTS_F)
                        printf("fts child %s %ld\n", child->fts_name, (long)child->fts_statp->st_size);
        }
        fts_close(walk);
    }
    struct dirent **names;
    int count = scandir("d", &names, NULL, alphasort);
    for (int at = 0; at < count; at++)
        printf("scandir %s %d\n", names[at]->d_name, names[at]->d_type);
    glob_t matches;
    SAY(glob("d/f*", 0, NULL, &matches));
    SAY(matches.gl_pathc);
    struct statvfs space;
    SAY(statvfs("d/f1", &space));
    SAY(space.f_blocks > 0);
}

static void names(void) {
    family = "names";
    close(fill("n1", "one"));
    close(fill("n2", "second"));
    SAY(renameat2(AT_FDCWD, "n1", AT_FDCWD, "n2", RENAME_NOREPLACE));
    SAY(renameat2(AT_FDCWD, "n1", AT_FDCWD, "n2", RENAME_EXCHANGE));
    show("n1");
    SAY(rename("n1", "n2"));
    show("n2");
    SAY(rename("n1", "n2"));
    SAY(link("n2", "n3"));
    struct stat found;
    SAY(stat("n3", &found));
    SAY(found.st_nlink);
    SAY(link("n2", "n3"));
    SAY(rename("n2", "n3"));
    SAY(unlink("n2"));
    SAY(unlink("n2"));
    show("n3");
    int fd = open("n3", O_RDWR);
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    SAY(linkat(AT_FDCWD, path, AT_FDCWD, "n4", AT_SYMLINK_FOLLOW));
    SAY(unlink("n3"));
    SAY(remove("n4"));
    SAY(fstat(fd, &found));
    SAY(found.st_nlink);
    SAY(pwrite(fd, "STILL", 5, 0));
    char text[8] = "";
    SAY(pread(fd, text, 7, 0));
    puts(text);
    close(fd);
    SAY(open(".", O_TMPFILE | O_RDONLY, 0600));
    SAY((fd = open(".", O_TMPFILE | O_RDWR, 0600)) >= 0);
    SAY(write(fd, "unnamed", 7));
    SAY(fstat(fd, &found));
    SAY(found.st_nlink);
    SAY(found.st_size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    SAY(linkat(AT_FDCWD, path, AT_FDCWD, "named", AT_SYMLINK_FOLLOW));
    SAY(linkat(AT_FDCWD, path, AT_FDCWD, "named", AT_SYMLINK_FOLLOW));
    SAY(write(fd, " no more", 8));
    show("named");
    close(fd);
    SAY(unlink("named"));
    SAY((fd = open(".", O_TMPFILE | O_WRONLY | O_EXCL, 0600)) >= 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    SAY(linkat(AT_FDCWD, path, AT_FDCWD, "named", AT_SYMLINK_FOLLOW));
    close(fd);
    SAY((fd = open("proc", O_CREAT | O_RDWR, 0600)) >= 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(path, text, sizeof text);
    SAY(length > 5);
    SAY(access("proc", F_OK));
    char link_name[4096] = "";
    SAY(readlink(path, link_name, sizeof link_name - 1) > 0);
    SAY(strcmp(strrchr(link_name, '/'), "/proc"));
    close(fd);
    SAY(mkdir("nd", 0755));
    close(fill("nd/f", ""));
    SAY(rmdir("nd"));
    SAY(rename("nd", "ne"));
    SAY(unlink("ne"));
    SAY(unlinkat(AT_FDCWD, "ne/f", 0));
    SAY(unlinkat(AT_FDCWD, "ne", AT_REMOVEDIR));
    SAY(remove("ne"));
    char template[] = "tmpXXXXXX";
    SAY((fd = mkstemp(template)) >= 0);
    SAY(write(fd, "t", 1));
    close(fd);
    SAY(size_of(template));
    SAY(unlink(template));
    char bad[] = "tmpXXX";
    SAY(mkstemp(bad));
}

static void attributes(void) {
    family = "attributes";
    int fd = fill("a", "attributes");
    struct stat found, later;
    SAY(fchmod(fd, 0604));
    SAY(chmod("a", 04640));
    SAY(fchmodat(AT_FDCWD, "a", 0640, 0));
    stat("a", &found);
    SAY(found.st_mode & 07777);
    SAY(chown("a", -1, -1));
    SAY(fchown(fd, -1, -1));
    SAY(lchown("a", -1, -1));
    SAY(fchownat(AT_FDCWD, "a", -1, -1, 0));
    stat("a", &later);
    SAY(found.st_mtim.tv_sec == later.st_mtim.tv_sec && found.st_mtim.tv_nsec == later.st_mtim.tv_nsec);
    SAY(setxattr("a", "user.one", "1", 1, 0));
    SAY(fsetxattr(fd, "user.two", "22", 2, XATTR_CREATE));
    SAY(fsetxattr(fd, "user.two", "22", 2, XATTR_CREATE));
    char value[100];
    SAY(getxattr("a", "user.two", value, sizeof value));
    SAY(lgetxattr("a", "user.three", value, sizeof value));
    SAY(listxattr("a", value, sizeof value));
    SAY(fremovexattr(fd, "user.one"));
    SAY(removexattr("a", "user.two"));
    stat("a", &later);
    SAY(found.st_mtim.tv_sec == later.st_mtim.tv_sec && found.st_mtim.tv_nsec == later.st_mtim.tv_nsec);
    struct timespec times[2] = {{1000, 5}, {2000, 7}};
    SAY(futimens(fd, times));
    stat("a", &found);
    printf("%ld %ld\n", (long)found.st_mtim.tv_sec, found.st_mtim.tv_nsec);
    times[1].tv_nsec = UTIME_OMIT;
    SAY(utimensat(AT_FDCWD, "a", times, 0));
    stat("a", &found);
    printf("%ld %ld\n", (long)found.st_mtim.tv_sec, found.st_mtim.tv_nsec);
    struct timeval micros[2] = {{3000, 1}, {4000, 2}};
    SAY(utimes("a", micros));
    stat("a", &found);
    printf("%ld %ld\n", (long)found.st_mtim.tv_sec, found.st_mtim.tv_nsec);
    micros[1].tv_sec = 4001;
    SAY(futimes(fd, micros));
    micros[1].tv_sec = 4002;
    SAY(lutimes("a", micros));
    SAY(futimesat(AT_FDCWD, "a", micros));
    stat("a", &found);
    printf("%ld %ld\n", (long)found.st_mtim.tv_sec, found.st_mtim.tv_nsec);
    struct utimbuf old = {5000, 6000};
    SAY(utime("a", &old));
    stat("a", &found);
    printf("%ld %ld\n", (long)found.st_mtim.tv_sec, found.st_mtim.tv_nsec);
    SAY(write(fd, "x", 1));
    stat("a", &found);
    SAY(found.st_mtim.tv_sec > 1000000);
    SAY(chmod("a", 0600));
    stat("a", &later);
    SAY(found.st_mtim.tv_sec == later.st_mtim.tv_sec);
    times[1].tv_nsec = 2000000000;
    SAY(futimens(fd, times));
    SAY(chmod("missing", 0600));
    close(fd);
    SAY(fchmod(fd, 0600));
}

static void descriptors(void) {
    family = "descriptors";
    int fd = fill("e", "abcdefgh"), copy;
    SAY(lseek(fd, 1, SEEK_SET));
    char byte;
    SAY((copy = dup(fd)) > fd);
    SAY(read(copy, &byte, 1));
    SAY(lseek(fd, 0, SEEK_CUR));
    SAY(dup2(fd, 50));
    SAY(dup3(fd, 51, O_CLOEXEC));
    SAY(fcntl(51, F_GETFD));
    SAY(dup3(fd, fd, 0));
    SAY(fcntl(fd, F_DUPFD, 60));
    SAY(fcntl(fd, F_DUPFD_CLOEXEC, 60));
    SAY(read(61, &byte, 1));
    SAY(byte);
    SAY(close_range(50, 60, 0));
    SAY(read(50, &byte, 1));
    closefrom(61);
    SAY(read(61, &byte, 1));
    SAY(lseek(fd, 0, SEEK_CUR));
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 4};
    SAY(fcntl(fd, F_SETLK, &lock));
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        SAY(fcntl(fd, F_SETLK, &lock));
        SAY(fcntl(fd, F_GETLK, &lock));
        SAY(lock.l_type == F_WRLCK && lock.l_pid == getppid());
        SAY(lockf(fd, F_TLOCK, 1));
        SAY(flock(fd, LOCK_EX | LOCK_NB));
        fflush(stdout);
        _exit(7);
    }
    int status;
    waitpid(child, &status, 0);
    SAY(WEXITSTATUS(status));
    lock.l_type = F_UNLCK;
    SAY(fcntl(fd, F_SETLK, &lock));
    SAY(flock(fd, LOCK_EX | LOCK_NB));
    copy = open("e", O_RDWR);
    SAY(flock(copy, LOCK_EX | LOCK_NB));
    SAY(flock(fd, LOCK_UN));
    SAY(flock(copy, LOCK_SH | LOCK_NB));
    lock.l_type = F_RDLCK;
    lock.l_pid = 0;
    SAY(fcntl(fd, F_OFD_SETLK, &lock));
    lock.l_type = F_WRLCK;
    SAY(fcntl(copy, F_OFD_SETLK, &lock));
    fflush(stdout);
    if ((child = fork()) == 0) {
        SAY(fcntl(fd, F_OFD_SETLK, &lock));
        fflush(stdout);
        _exit(0);
    }
    waitpid(child, &status, 0);
    close(copy);
    int pair[2];
    SAY(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    union { char room[CMSG_SPACE(sizeof(int))]; struct cmsghdr align; } control = {0};
    struct iovec letter = {"x", 1};
    struct msghdr message = {.msg_iov = &letter, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    struct cmsghdr *part = CMSG_FIRSTHDR(&message);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(part), &fd, sizeof fd);
    SAY(lseek(fd, 2, SEEK_SET));
    fflush(stdout);
    child = fork();
    if (child == 0) {
        char room;
        struct iovec to = {&room, 1};
        message.msg_iov = &to;
        close(fd);
        SAY(recvmsg(pair[1], &message, 0));
        int got;
        memcpy(&got, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof got);
        SAY(read(got, &byte, 1));
        SAY(byte);
        SAY(write(got, "PASSED", 6));
        SAY(close(got));
        fflush(stdout);
        _exit(0);
    }
    SAY(sendmsg(pair[0], &message, 0));
    waitpid(child, &status, 0);
    SAY(lseek(fd, 0, SEEK_CUR));
    show("e");
    close(fd);
}

static void streams(void) {
    family = "streams";
    FILE *stream = fopen("s", "w+");
    SAY(fprintf(stream, "%s %d\n", "line", 1));
    SAY(fseek(stream, 0, SEEK_SET));
    char line[100];
    SAY(fgets(line, sizeof line, stream) != NULL);
    SAY(ftell(stream));
    SAY(fileno(stream) > 2);
    SAY(fclose(stream));
    stream = fopen("s", "a");
    SAY(fputs("more\n", stream));
    SAY(fflush(stream));
    SAY(size_of("s"));
    SAY(freopen("s", "r", stream) != NULL);
    SAY(fclose(stream));
    SAY(fopen("s", "wx") == NULL ? -1 : 0);
    SAY(fopen("s", "q") == NULL ? -1 : 0);
    SAY(fopen("missing", "r") == NULL ? -1 : 0);
    stream = fopen("s", "r");
    size_t room = 0;
    char *text = NULL;
    SAY(getline(&text, &room, stream));
    SAY(ungetc('x', stream));
    SAY(fgetc(stream));
    SAY(fread(line, 1, sizeof line, stream));
    SAY(feof(stream) != 0);
    fclose(stream);
    int fd = open("s", O_RDONLY);
    SAY(fdopen(fd, "w") == NULL ? -1 : 0);
    stream = fdopen(fd, "r");
    SAY(fscanf(stream, "%99s", line));
    fclose(stream);
    SAY(close(fd));
    stream = fopen("s2", "w");
    SAY(freopen("s3", "w", stream) == stream || 1);
    fclose(fopen("s3", "r"));
    show("s");
}

static void requests(void) {
    family = "requests";
    int fd = fill("r", "asynchronous");
    char to[20] = "";
    struct aiocb request = {.aio_fildes = fd, .aio_buf = to, .aio_nbytes = 5, .aio_offset = 1};
    request.aio_sigevent.sigev_notify = SIGEV_NONE;
    const struct aiocb *waiting[1] = {&request};
    SAY(aio_read(&request));
    SAY(aio_suspend(waiting, 1, NULL));
    SAY(aio_error(&request));
    SAY(aio_return(&request));
    puts(to);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN);
    sigprocmask(SIG_BLOCK, &set, NULL);
    struct aiocb write_request = {.aio_fildes = fd, .aio_buf = "WRITTEN", .aio_nbytes = 7, .aio_offset = 12};
    write_request.aio_sigevent.sigev_notify = SIGEV_SIGNAL;
    write_request.aio_sigevent.sigev_signo = SIGRTMIN;
    write_request.aio_sigevent.sigev_value.sival_int = 77;
    SAY(aio_write(&write_request));
    siginfo_t information;
    SAY(sigwaitinfo(&set, &information) == SIGRTMIN);
    SAY(information.si_value.sival_int);
    SAY(information.si_code == SI_ASYNCIO);
    SAY(aio_return(&write_request));
    show("r");
    request.aio_lio_opcode = LIO_READ;
    request.aio_offset = 12;
    write_request.aio_lio_opcode = LIO_WRITE;
    write_request.aio_offset = 0;
    write_request.aio_sigevent.sigev_notify = SIGEV_NONE;
    struct aiocb *list[3] = {&request, NULL, &write_request};
    SAY(lio_listio(LIO_WAIT, list, 3, NULL));
    SAY(aio_return(&request));
    SAY(aio_return(&write_request));
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN};
    SAY(lio_listio(LIO_NOWAIT, list, 3, &event));
    SAY(sigwaitinfo(&set, &information) == SIGRTMIN);
    SAY(aio_fsync(O_SYNC, &write_request));
    SAY(aio_suspend((const struct aiocb *const[]){&write_request}, 1, NULL));
    SAY(aio_error(&write_request));
    SAY(aio_cancel(fd, NULL) == AIO_ALLDONE);
    close(fd);
    request.aio_fildes = 999;
    show("r");
}

static int in_clone(void *argument) {
    int fd = *(int *)argument;
    dprintf(fd, "from a clone ");
    return 3;
}

static void processes(void) {
    family = "processes";
    int fd = fill("p", ""), status;
    SAY(fchmod(fd, 0700));
    fflush(stdout);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    SAY(mkdir("pd", 0755));
    SAY(posix_spawn_file_actions_addchdir_np(&actions, "pd"));
    SAY(posix_spawn_file_actions_addopen(&actions, 1, "out", O_CREAT | O_WRONLY, 0644));
    SAY(posix_spawn_file_actions_addopen(&actions, 0, "../names", O_RDONLY, 0));
    SAY(posix_spawn_file_actions_adddup2(&actions, fd, 9));
    close(fill("names", "read by a child\n"));
    char *arguments[] = {"sh", "-c", "cat; echo to nine >&9; read x < ../names; echo $x", NULL};
    pid_t child;
    fflush(stdout);
    SAY(posix_spawn(&child, "/bin/sh", &actions, NULL, arguments, environ));
    waitpid(child, &status, 0);
    SAY(WEXITSTATUS(status));
    posix_spawn_file_actions_destroy(&actions);
    show("pd/out");
    show("p");
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, "missing/out", O_CREAT | O_WRONLY, 0644);
    SAY(posix_spawn(&child, "/bin/sh", &actions, NULL, arguments, environ));
    posix_spawn_file_actions_destroy(&actions);
    static char stack[1 << 20] __attribute__((aligned(16)));
    fflush(stdout);
    SAY(lseek(fd, 0, SEEK_END));
    child = clone(in_clone, stack + sizeof stack - 64, SIGCHLD, &fd);
    waitpid(child, &status, 0);
    SAY(WEXITSTATUS(status));
    fflush(stdout);
    child = _Fork();
    if (child == 0) {
        dprintf(fd, "from _Fork ");
        _exit(4);
    }
    waitpid(child, &status, 0);
    SAY(WEXITSTATUS(status));
    fflush(stdout);
    child = vfork();
    if (child == 0) {
        execl("/bin/sh", "sh", "-c", "echo from vfork >&$0; exit 5", "3", NULL);
        _exit(127);
    }
    waitpid(child, &status, 0);
    char text[100];
    snprintf(text, sizeof text, "printf 'by system' >&%d", fd);
    SAY(system(text));
    FILE *pipe = popen("cat pd/out", "r");
    SAY(fgets(text, sizeof text, pipe) != NULL);
    SAY(pclose(pipe));
    printf("%s", text);
    show("p");
    close(fd);
    close(fill("script", "#!/bin/sh\necho script $0 $*; exit 6\n"));
    SAY(chmod("script", 0755));
    fflush(stdout);
    SAY(WEXITSTATUS(system("./script one two")));
    SAY(chmod("script", 0644));
    char *list[] = {"./script", "three", NULL};
    SAY(posix_spawn(&child, "./script", NULL, NULL, list, environ) == EACCES);
    SAY(execv("./script", list));
    SAY(chmod("script", 0755));
    fflush(stdout);
    SAY(posix_spawn(&child, "./script", NULL, NULL, list, environ));
    waitpid(child, &status, 0);
    SAY(WEXITSTATUS(status));
    fflush(stdout);
    if ((child = fork()) == 0) {
        int script = open("script", O_RDONLY);
        fexecve(script, list, environ);
        _exit(99);
    }
    waitpid(child, &status, 0);
    SAY(WEXITSTATUS(status));
    SAY(WEXITSTATUS(system("cp /bin/true here && ./here && PATH=$PWD:$PATH here")));
}

static volatile sig_atomic_t signals;
static void on_signal(int number) {
    signals += number == SIGXFSZ;
}

static void limits(void) {
    family = "limits";
    signal(SIGXFSZ, on_signal);
    struct rlimit limit = {1000, RLIM_INFINITY};
    int fd = fill("l", "");
    SAY(setrlimit(RLIMIT_FSIZE, &limit));
    char bytes[2000] = "";
    SAY(pwrite(fd, bytes, 2000, 500));
    SAY(pwrite(fd, bytes, 1, 1000));
    SAY(signals);
    SAY(write(fd, bytes, 2000));
    SAY(write(fd, bytes, 2000));
    SAY(signals);
    SAY(ftruncate(fd, 1001));
    SAY(fallocate(fd, 0, 0, 1001));
    SAY(signals);
    SAY(ftruncate(fd, 990));
    close(fd);
    fd = open("l", O_WRONLY | O_APPEND);
    SAY(write(fd, bytes, 20));
    SAY(write(fd, bytes, 20));
    SAY(signals);
    SAY(size_of("l"));
    close(fd);
    limit.rlim_cur = RLIM_INFINITY;
    SAY(prlimit(0, RLIMIT_FSIZE, &limit, NULL));
    SAY(truncate("l", 2000));
}

int main(int count, char **arguments) {
    if (count < 2 || chdir(arguments[1]) < 0)
        return 2;
    umask(022);
    setvbuf(stdout, NULL, _IOFBF, 1 << 16);
    opening();
    moving_bytes();
    copies();
    looking();
    names();
    attributes();
    descriptors();
    streams();
    requests();
    processes();
    limits();
    return fflush(stdout);
}
