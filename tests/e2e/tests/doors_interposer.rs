//! The interposer, family by family: what programs are told on ccPFS is what they are told on an ordinary directory.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use ccpfs_e2e::{Cluster, Options, describe, finish, output_of, program_source};

fn two_servers() -> Cluster {
    Cluster::start(&Options { servers: 2, stripes: 2, stripe_size: "64KiB", ..Options::default() })
}

/// Runs a script in a directory of the namespace and in an ordinary one, and compares what is printed.
fn compare(cluster: &Cluster, script: &str) -> String {
    let inside = |base: &str| format!("mkdir -p \"${base}/w\"; cd \"${base}/w\"\n{script}");
    let ours = cluster.shell(&inside("NS"));
    let plain = cluster.plain_shell(&inside("OUT"));
    let differing: Vec<_> = ours.lines().zip(plain.lines()).filter(|(one, other)| one != other).collect();
    assert!(differing.is_empty(), "on ccPFS, and on an ordinary directory: {differing:#?}");
    assert_eq!(ours, plain);
    ours
}

#[test]
fn every_call_tells_a_program_what_it_tells_on_an_ordinary_directory() {
    let cluster = two_servers();
    let program = cluster.compile("gcc", &program_source("every_call.c"), &[]);
    let out = compare(&cluster, &format!("{} .", program.display()));
    assert!(out.contains("limits: truncate(\"l\", 2000) = 0"), "{out}");
}

#[test]
fn regression_handlers_of_signals_may_leave_a_call_and_make_calls() {
    let cluster = two_servers();
    let program = cluster.compile("gcc", &program_source("handlers.c"), &[]);
    let out = compare(&cluster, &format!("{} .", program.display()));
    assert_eq!(out, "calls were left\nhandlers have written\nwaits have ended\n");
}

#[test]
fn coreutils_tar_and_editors_do_the_same_on_both() {
    let out = compare(
        &two_servers(),
        r#"
        head -c 100000 /dev/zero > z; printf tail >> z
        cp --sparse=always z z1; cmp z z1; cp --reflink=auto z z2; cmp z z2; cp --sparse=never z z3; cmp z z3; cp -a z z4
        install -m 755 z z5; stat -c '%a %s' z5; mv z5 z6; truncate -s 5 z6; truncate -r z z6; stat -c %s z6
        seq 20000 | shuf --random-source=/dev/zero > s; sort -n -o s s; head -n 1 s
        split -b 10000 s sp.; cat sp.* | cmp - s; tee t1 < s > t2; cmp t1 t2
        echo more | dd of=s oflag=append conv=notrunc status=none; tail -n 1 s; csplit -s s 100; ls xx*
        shred -u sp.aa; test ! -e sp.aa; fallocate -l 1000 fa; stat -c %s fa; ln z lnk; stat -c '%h %s' lnk
        du -b --apparent-size z | cut -f 1; find . -size +97k -name 'z*' | sort; grep -rl 19999 . | sort
        touch -r z t1; test t1 -nt t2 || echo older; od -c fa | head -n 2; tail -n 2 s; tac s | head -n 1 || true; less s < /dev/null | tail -n 1
        tar cf a.tar s z t1; mkdir x; tar xf a.tar -C x; cmp s x/s; tar df a.tar; tar czf a.tgz s; tar tzf a.tgz
        if command -v vim > /dev/null; then vim -u NONE -es -c '%s/20000/twenty/' -c wq s < /dev/null; grep -c twenty s; fi
        sed -i s/more/mehr/ s; perl -i -pe 's/mehr/plus/' s; tail -n 1 s
        perl -e 'use Fcntl; open F,"+<","s"; flock F,2; seek F,0,2; print F "perl\n"; close F; print -s "s","\n"; truncate "s",10; print -s "s","\n";
            sysopen G,"g",O_CREAT|O_EXCL|O_RDWR or die; syswrite G,"hi"; sysseek G,0,0; sysread G,$b,10; print "$b\n"; rename "g","h"; unlink "h"; print -e "h" ? "there":"gone","\n"'
        "#,
    );
    assert!(out.ends_with("hi\ngone\n"), "{out}");
}

#[test]
fn programs_and_scripts_on_ccpfs_are_started_in_every_way() {
    let out = compare(
        &two_servers(),
        r#"
        printf '#!/bin/sh\necho script $0 $1\n' > sc; chmod 755 sc; ./sc one; sh ./sc two; PATH=.:$PATH sc three
        cp "$(type -P echo)" echo; chmod 755 echo; ./echo copied; bash -c './echo x | cat > piped; cat piped'
        env -i ./echo clean; env -i PATH=. ./echo cleaner; env -i PATH="$PWD" echo cleanest; xargs -a piped ./echo
        timeout 5 ./echo timed; find . -maxdepth 1 -name piped -exec ./echo {} \;
        python3 -c 'import subprocess; print(subprocess.run(["./echo", "spawned"], capture_output=True, close_fds=False).stdout)'
        chmod 644 echo sc; ./sc 2> /dev/null || echo $?; ./echo 2> /dev/null || echo $?
        for i in 1 2 3; do echo "int f$i(void) { return $i; }" > f$i.c; done
        echo 'int f1(void), f2(void), f3(void); int main(void) { return f1() + f2() + f3() - 6; }' > main.c
        printf 'p: main.o f1.o f2.o f3.o lib.a\n\t$(CC) -o $@ main.o f1.o f2.o f3.o\nlib.a: f1.o f2.o\n\tar rcs $@ $^\ncheck: p\n\t./p && echo built\n' > Makefile
        make -s -j2 check; make -s check; nm lib.a | grep -c ' T '
        "#,
    );
    assert!(out.ends_with("built\nbuilt\n2\n"), "{out}");
}

#[test]
fn sqlite_keeps_its_database_in_every_journal_that_needs_no_shared_memory() {
    let out = compare(
        &two_servers(),
        r#"
        for mode in delete truncate persist memory off; do
            rm -f db*
            sqlite3 db "pragma journal_mode=$mode; create table t(a integer primary key, b);
                with recursive c(x) as (select 1 union all select x+1 from c where x<500) insert into t select x, hex(zeroblob(50)) from c;
                update t set b='q' where a%7=0; delete from t where a%5=0; vacuum; select count(*), sum(a) from t; pragma integrity_check;"
        done
        sqlite3 w "pragma locking_mode=exclusive; pragma journal_mode=wal; create table t(a); insert into t values(1); select * from t; pragma journal_mode=delete"
        sqlite3 w "select * from t; pragma integrity_check"
        "#,
    );
    assert_eq!(out.matches("ok\n").count(), 6, "{out}");
}

#[test]
fn sqlite_with_a_shared_write_ahead_log_fails_and_keeps_the_database() {
    let cluster = two_servers();
    let _ = cluster.shell("cd $NS; sqlite3 d 'create table t(a); insert into t values(7)'");
    let refused = "cd $NS; sqlite3 d 'pragma journal_mode=wal; insert into t values(8)'";
    let output = finish(cluster.command("bash").args(["-c", refused]));
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && errors.contains("disk I/O error"), "{}", describe(&output));
    let back =
        "pragma locking_mode=exclusive; pragma journal_mode=delete; select a from t; pragma integrity_check";
    let found = cluster.shell(&format!("cd $NS; sqlite3 d '{back}'; sqlite3 d 'select a from t'"));
    assert_eq!(found, "exclusive\ndelete\n7\nok\n7\n");
}

#[test]
fn followers_of_a_growing_file_poll_because_the_kernel_would_not_tell_them() {
    let cluster = two_servers();
    let script = r#"
import ctypes, os, subprocess, sys
path = sys.argv[1] + "/log"
open(path, "w").close()
tail = subprocess.Popen(["tail", "-f", "-s", "0.05", path], stdout=subprocess.PIPE)
with open(path, "a") as log:
    for line in range(3):
        log.write("line %d\n" % line)
        log.flush()
        assert tail.stdout.readline() == b"line %d\n" % line
tail.kill()
libc = ctypes.CDLL(None, use_errno=True)
watcher = libc.inotify_init1(0)
assert libc.inotify_add_watch(watcher, path.encode(), 2) == -1 and ctypes.get_errno() == 95
assert libc.inotify_add_watch(watcher, path.encode(), 0x400) > 0
assert libc.inotify_add_watch(watcher, sys.argv[1].encode(), 0x300) > 0
assert libc.inotify_add_watch(watcher, sys.argv[1].encode(), 0xfff) == -1
assert libc.inotify_add_watch(watcher, sys.argv[2].encode(), 0xfff) > 0
os.unlink(path)
assert len(os.read(watcher, 4096)) > 0
print("all right")
"#;
    let mut command = cluster.command("python3");
    command.args(["-c", script]).arg(cluster.namespace()).arg(cluster.outside());
    assert_eq!(output_of(&mut command), "all right\n");
}

#[test]
fn after_chroot_open_files_go_on_and_names_are_those_below_the_new_root() {
    // A server on a Unix socket cannot be reached by its name any more, so the connection is made before.
    let cluster = Cluster::start(&Options::default());
    let script = r#"
import os, sys
root = sys.argv[1]
f = open(root + "/ns/f", "w+")
f.write("content")
f.flush()
os.fsync(f.fileno())
try:
    os.chroot(root)
except PermissionError:
    print("all right")
    sys.exit()
os.chdir("/")
f.seek(0)
assert f.read() == "content"
f.write(" and more")
f.close()
assert os.listdir("/ns").count("f") == 1
open("/out/plain", "w").write("x")
assert os.stat("/out/plain").st_size == 1
print("all right")
"#;
    let mut command = cluster.command("python3");
    command.args(["-c", script]).arg(cluster.namespace().parent().unwrap());
    assert_eq!(output_of(&mut command), "all right\n");
    assert_eq!(cluster.shell("cat $NS/f"), "content and more");
}

#[test]
fn pointers_to_nowhere_and_the_longest_paths_are_answered_as_by_the_kernel() {
    let out = compare(
        &two_servers(),
        r#"
cat > program.py << 'END'
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
room = ctypes.create_string_buffer(4096)
def tried(name, *arguments):
    answer = getattr(libc, name)(*arguments)
    print(name, answer, answer != -1 or ctypes.get_errno())
open("there", "w").write("x")
here = ctypes.c_char_p(b"there")
libc.mmap.restype = ctypes.c_void_p
page = libc.mmap(None, ctypes.c_size_t(8192), 3, 0x22, -1, ctypes.c_long(0))
libc.munmap(ctypes.c_void_p(page + 4096), ctypes.c_size_t(4096))
ctypes.memset(page, ord("a"), 4096)
for bad in ctypes.c_void_p(None), ctypes.c_void_p(1), ctypes.c_void_p(page + 4096), ctypes.c_void_p(page + 4000), ctypes.c_void_p(2**64 - 8):
    tried("open", bad, 0, 0); tried("open", bad, 0o102, 0o600); tried("openat", -100, bad, 0, 0); tried("creat", bad, 0o600)
    tried("unlink", bad); tried("unlinkat", -100, bad, 0); tried("rmdir", bad); tried("remove", bad)
    tried("rename", here, bad); tried("rename", bad, here); tried("renameat2", -100, here, -100, bad, 1)
    tried("link", here, bad); tried("link", bad, here); tried("linkat", -100, bad, -100, here, 0x400)
    tried("symlink", bad, here); tried("mknod", bad, 0o100600, 0); tried("mkfifo", bad, 0o600); tried("mkdir", bad, 0o700)
    tried("stat", bad, room); tried("lstat", bad, room); tried("fstatat", -100, bad, room, 0); tried("statx", -100, bad, 0, 0x7ff, room)
    tried("chmod", bad, 0o600); tried("chown", bad, 0, 0); tried("lchown", bad, 0, 0); tried("truncate", bad, ctypes.c_long(0))
    tried("chdir", bad); tried("access", bad, 0); tried("statfs", bad, room); tried("setxattr", bad, b"user.a", b"b", 1, 0)
for bad in ctypes.c_void_p(1), ctypes.c_void_p(page + 4096):
    tried("utimensat", -100, bad, None, 0); tried("utimensat", -100, here, bad, 0)
def named(length, name):
    return "./" * ((length - len(name)) // 2) + ("/" if (length - len(name)) % 2 else "") + name
for length in 4094, 4095, 4096, 5000:
    for work in [lambda n: open(n, "x").close(), lambda n: open(n, "r+").write("abc"), lambda n: print(os.stat(n).st_size),
            lambda n: os.truncate(n, 2), lambda n: os.utime(n, (1, 1)), lambda n: os.chmod(n, 0o640), lambda n: os.rename(n, named(length, "g")),
            lambda n: os.link(named(length, "g"), n), lambda n: os.replace(n, named(length, "h")), lambda n: os.unlink(named(length, "h")),
            lambda n: os.unlink(named(length, "g")), lambda n: os.mknod(n, 0o100600), lambda n: os.unlink(n),
            lambda n: os.symlink("no/" * 1300, n), lambda n: os.unlink(n), lambda n: open(n, "w").close(), lambda n: os.unlink(n)]:
        try:
            work(named(length, "f"))
            print(length, "done")
        except OSError as e:
            print(length, e.errno)
print(sorted(os.listdir(".")))
END
python3 program.py
        "#,
    );
    assert!(out.contains("4095 done") && out.ends_with("['program.py', 'there']\n"), "{out}");
}

#[test]
fn a_file_without_a_name_lives_on_in_programs_that_are_started_with_it() {
    let out = compare(
        &two_servers(),
        r#"
        echo one > f; exec 3< f; rm f; cat <&3; exec 3<&-
        echo two > g; bash -c 'exec 3< g; rm g; exec cat <&3'
        echo three > h; bash -c 'exec 3< h; rm h; exec bash -c "exec python3 -c \"import os; print(os.read(3, 9))\""'
        mkfifo told gone
        echo four > i; (bash -c 'exec 3< i; rm i; (exec bash -c "echo > gone; read x < told; cat <&3") & read x < gone'; echo > told; wait)
        cat > program.py << 'END'
import os, subprocess
f = open("j", "w+"); f.write("five\n"); f.flush(); f.seek(0); os.unlink("j")
child = subprocess.Popen(["bash", "-c", "read x; cat <&%d" % f.fileno()], stdin=subprocess.PIPE, pass_fds=[f.fileno()])
f.close(); child.communicate(b"go\n")
f = open("k", "w+"); f.write("six\n"); f.flush(); f.seek(0); os.unlink("k"); os.set_inheritable(f.fileno(), True)
there, here = os.pipe()
child = os.posix_spawn("/bin/sh", ["sh", "-c", "read x; cat <&%d" % f.fileno()], os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, there, 0)])
f.close(); os.write(here, b"go\n"); os.waitpid(child, 0)
END
        python3 program.py
        "#,
    );
    assert!(out.contains("one\ntwo\n") && out.contains("four\n") && out.contains("five\nsix\n"), "{out}");
}

#[test]
fn a_new_file_is_open_as_asked_for_whatever_its_mode_says() {
    let out = compare(
        &two_servers(),
        r#"
        chmod 777 . ..; cat > program.py << 'END'
import os
# Others may not reach the servers' sockets, so the connections are made before.
with open("big", "wb") as big:
    big.write(bytes(200000)); big.flush(); os.fsync(big.fileno())
try:
    os.seteuid(65534)
except PermissionError:
    pass
for mode in 0, 0o200, 0o400, 0o444:
    for umask in 0, 0o777:
        os.umask(umask)
        fd = os.open("f%o" % mode, os.O_CREAT | os.O_EXCL | os.O_RDWR, mode)
        os.ftruncate(fd, 5); os.write(fd, b"ab"); os.lseek(fd, 0, 0)
        print(os.read(fd, 9), oct(os.fstat(fd).st_mode)); os.close(fd)
        try:
            os.close(os.open("f%o" % mode, os.O_RDONLY)); print("opened")
        except PermissionError:
            print("refused")
        os.unlink("f%o" % mode)
END
        python3 program.py
        "#,
    );
    assert_eq!(out.matches("0o100000").count(), 5, "{out}");
}

#[test]
fn locks_end_with_the_descriptors_that_the_program_closes() {
    let out = compare(
        &two_servers(),
        r#"
        echo data > f
        cat > locks.py <<'EOF'
import fcntl, os
NOW = fcntl.LOCK_EX | fcntl.LOCK_NB
def can(lock, *arguments):
    try:
        lock(*arguments)
        return True
    except BlockingIOError:
        return False
def others_can_write():
    child = os.fork()
    if child == 0:
        os._exit(0 if can(fcntl.lockf, os.open("f", os.O_RDWR), NOW) else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
def opened(count, how=os.O_RDONLY):
    return [os.open("f", how) for _ in range(count)]
for first in (True, False):
    one, two, three = opened(3)
    locked = one if first else two
    fcntl.flock(locked, NOW)
    print("held:", can(fcntl.flock, three, NOW))
    os.close(locked)
    print("closed:", can(fcntl.flock, three, NOW))
    for fd in {one, two, three} - {locked}: os.close(fd)
one, two = opened(2)
copy = os.dup(one)
fcntl.flock(one, NOW)
os.close(one)
print("a copy is left:", can(fcntl.flock, two, NOW))
os.dup2(two, copy)
print("replaced:", can(fcntl.flock, two, NOW))
os.close(two), os.close(copy)
one, two = opened(2)
done, go_on = os.pipe(), os.pipe()
child = os.fork()
if child == 0:
    os.close(one)
    os.write(done[1], b"x")
    os.read(go_on[0], 1)
    os._exit(0)
os.read(done[0], 1)
fcntl.flock(one, NOW)
os.close(one)
print("closed in both processes:", can(fcntl.flock, two, NOW))
os.write(go_on[1], b"x")
os.waitpid(child, 0)
os.close(two)
(writer,), readers = opened(1, os.O_RDWR), opened(2)
fcntl.lockf(writer, NOW)
os.stat("f"), os.fstat(readers[0]), os.pread(readers[1], 4, 0)
print("looked at:", others_can_write())
os.close(readers[0])
print("another descriptor closed:", others_can_write())
EOF
        timeout 60 python3 locks.py
        "#,
    );
    assert!(out.ends_with("another descriptor closed: True\n"), "{out}");
}
