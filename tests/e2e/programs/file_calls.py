"""Python's file calls on a directory of the namespace. Arguments: that directory, and one outside. Prints "all right"."""

import fcntl
import mmap
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading

ns, out = sys.argv[1], sys.argv[2]


def fails(number, call, *arguments):
    try:
        call(*arguments)
    except OSError as error:
        assert error.errno == number, error
    else:
        raise AssertionError(f"{call} did not fail")


def run(code, **options):
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, **options).stdout


def file_objects():
    path = f"{ns}/objects"
    with open(path, "wb") as f:
        f.write(b"0123456789" * 1000)
    assert os.path.getsize(path) == 10000
    with open(path, "r+b") as f:
        f.seek(5000)
        assert f.read(10) == b"0123456789"
        f.seek(-5, 2)
        assert f.read() == b"56789"
        f.seek(0, 2)
        f.write(b"END")
        assert f.tell() == 10003
    with open(path, "a") as f:
        f.write("more")
        f.flush()
        assert os.fstat(f.fileno()).st_size == 10007
    assert os.stat(path).st_size == 10007
    with open(path, "w") as f:
        print("line one", "line two", sep="\n", file=f)
    assert list(open(path)) == ["line one\n", "line two\n"]


def descriptors():
    path = f"{ns}/descriptors"
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o640)
    fails(17, os.open, path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    os.write(fd, b"0123456789" * 20)
    copy = os.dup(fd)
    os.lseek(fd, 100, 0)
    assert os.lseek(copy, 0, 1) == 100
    assert os.read(copy, 5) == b"01234" and os.read(fd, 5) == b"56789"
    os.close(fd)
    fails(9, os.write, fd, b"x")
    assert os.pwrite(copy, b"XY", 1) == 2 and os.pread(copy, 4, 0) == b"0XY3"
    one, two = bytearray(2), bytearray(3)
    assert os.preadv(copy, [one, two], 0) == 5 and one + two == b"0XY34"
    assert os.pwritev(copy, [b"ab", b"c"], 0) == 3 and os.pread(copy, 4, 0) == b"abc3"
    flags = fcntl.fcntl(copy, fcntl.F_GETFL)
    assert flags & os.O_ACCMODE == os.O_RDWR and not flags & os.O_APPEND
    fcntl.fcntl(copy, fcntl.F_SETFL, flags | os.O_APPEND)
    os.lseek(copy, 0, 0)
    os.write(copy, b"appended")
    assert os.fstat(copy).st_size == 208 and os.lseek(copy, 0, 1) == 208
    os.ftruncate(copy, 20)
    os.posix_fallocate(copy, 0, 50)
    assert os.fstat(copy).st_size == 50
    # Local file systems know holes by blocks only.
    assert os.lseek(copy, 0, os.SEEK_DATA) == 0 and os.lseek(copy, 0, os.SEEK_HOLE) in (20, 50)
    fails(19, mmap.mmap, copy, 0)
    private = mmap.mmap(copy, 0, access=mmap.ACCESS_COPY)
    assert private[:] == os.pread(copy, len(private) + 1, 0), 'a private mapping holds the file'
    private.close()
    os.fsync(copy)
    os.fdatasync(copy)
    high = os.dup2(copy, 900)
    os.close(copy)
    assert os.pread(high, 3, 0) == b"abc"
    os.close(high)
    for mode, call, argument in ((os.O_RDONLY, os.write, b"x"), (os.O_WRONLY, os.read, 1)):
        fd = os.open(path, mode)
        fails(9, call, fd, argument)
        os.close(fd)
    fails(2, os.open, f"{ns}/nothing", os.O_RDONLY)
    os.truncate(path, 1)
    assert open(path).read() == "a"


def locks():
    path = f"{ns}/locks"
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    code = f"""
import fcntl
f = open({path!r}, "r+")
try:
    fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
    print("free")
except OSError:
    print("taken")
"""
    fcntl.lockf(fd, fcntl.LOCK_EX)
    os.stat(path)  # Must not drop the lock, as closing another descriptor of the file would.
    assert run(code) == "taken\n"
    fcntl.lockf(fd, fcntl.LOCK_UN)
    assert run(code) == "free\n"
    fcntl.flock(fd, fcntl.LOCK_EX)
    os.close(fd)
    assert run(code) == "free\n"


def forks():
    fd = os.open(f"{ns}/forks", os.O_CREAT | os.O_RDWR, 0o600)
    os.write(fd, b"parent\n")
    for i in range(4):
        child = os.fork()
        if child == 0:
            os.write(fd, b"child %d\n" % i)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    os.write(fd, b"end\n")
    assert os.pread(fd, 100, 0) == b"parent\nchild 0\nchild 1\nchild 2\nchild 3\nend\n"
    os.ftruncate(fd, 0)
    os.lseek(fd, 0, 0)
    children = []
    for i in range(4):  # All at once: the shared offset gives each its own place.
        child = os.fork()
        if child == 0:
            for _ in range(100):
                os.write(fd, bytes([65 + i]) * 10)
            os._exit(0)
        children.append(child)
    for child in children:
        assert os.waitpid(child, 0)[1] == 0
    data = os.pread(fd, 10000, 0)
    assert len(data) == 4000 and all(data.count(65 + i) == 1000 for i in range(4))
    assert all(len(set(data[at : at + 10])) == 1 for at in range(0, 4000, 10))
    os.close(fd)


def subprocesses():
    path = f"{ns}/subprocesses"
    with open(path, "w") as f:
        f.write("first\n")
        f.flush()
        subprocess.run(["echo", "second"], stdout=f, check=True)
        subprocess.run([sys.executable, "-c", "print('third')"], stdout=f, check=True, env={})
        number = f.fileno()
        subprocess.run(
            [sys.executable, "-c", f"import os; os.write({number}, b'fourth\\n')"], pass_fds=[number], check=True
        )
        f.write("fifth\n")
        f.flush()
        assert run(f"print(open({path!r}).read(), end='')") == "first\nsecond\nthird\nfourth\nfifth\n"
        os.system(f"echo sixth >> {path}")
    assert os.popen(f"tail -n 1 {path}").read() == "sixth\n"
    assert subprocess.run(["head", "-n", "1"], stdin=open(path), capture_output=True).stdout == b"first\n"
    child = os.posix_spawn("/bin/sh", ["sh", "-c", f"echo spawned > {path}"], os.environ)
    assert os.waitpid(child, 0)[1] == 0 and open(path).read() == "spawned\n"


def threads():
    path = f"{ns}/threads"

    def write(index):
        fd = os.open(path, os.O_RDWR)
        for k in range(100):
            os.pwrite(fd, bytes([index]) * 1000, (k * 8 + index) * 1000)
        os.close(fd)

    open(path, "wb").close()
    workers = [threading.Thread(target=write, args=(i,)) for i in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    data = open(path, "rb").read()
    assert len(data) == 800000 and all(data[k * 1000 : k * 1000 + 1000] == bytes([k % 8]) * 1000 for k in range(800))


def names():
    data = os.urandom(300000)
    open(f"{ns}/a", "wb").write(data)
    with tempfile.NamedTemporaryFile(dir=ns) as f:
        f.write(b"12345")
        f.flush()
        assert os.path.getsize(f.name) == 5
    with tempfile.TemporaryFile(dir=ns) as f:
        f.write(data)
        f.seek(0)
        assert f.read() == data
    shutil.copyfile(f"{ns}/a", f"{ns}/b")
    shutil.copy2(f"{ns}/b", f"{out}/c")
    assert open(f"{out}/c", "rb").read() == data
    os.replace(f"{ns}/b", f"{ns}/a2")
    assert not os.path.exists(f"{ns}/b") and {e.name: e.stat().st_size for e in os.scandir(ns)}["a2"] == 300000
    os.mkdir(f"{ns}/dir")
    os.chdir(f"{ns}/dir")
    open("../relative", "w").write("x" * 9)
    assert os.path.getsize(f"{ns}/relative") == 9
    os.chdir("/")
    directory = os.open(f"{ns}/dir", os.O_RDONLY | os.O_DIRECTORY)
    fd = os.open("at", os.O_CREAT | os.O_WRONLY, dir_fd=directory)
    os.write(fd, b"abc")
    os.close(fd)
    assert os.stat("at", dir_fd=directory).st_size == 3
    os.rename("at", "at2", src_dir_fd=directory, dst_dir_fd=directory)
    os.unlink("at2", dir_fd=directory)
    os.close(directory)
    shutil.rmtree(f"{ns}/dir")
    os.symlink(f"{ns}/relative", f"{out}/link")
    open(f"{out}/link", "w").write("through")
    assert open(f"{ns}/relative").read() == "through" and os.path.getsize(f"{out}/link") == 7
    with open(f"{ns}/gone", "w+") as f:
        f.write("still here")
        f.flush()
        os.unlink(f"{ns}/gone")
        f.seek(0)
        assert f.read() == "still here"


def survives():
    os.closerange(3, 1024)  # What daemons do; the client's own connections must not go with it.
    open(f"{ns}/after", "w").write("ok")
    assert open(f"{ns}/after").read() == "ok"
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    for _ in range(100):
        open(f"{ns}/signals", "wb").write(b"s" * 100000)
    signal.setitimer(signal.ITIMER_REAL, 0)
    assert open(f"{ns}/signals", "rb").read() == b"s" * 100000


for part in (file_objects, descriptors, locks, forks, subprocesses, threads, names, survives):
    part()
print("all right")
