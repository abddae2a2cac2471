//! Programs as they are: git, sqlite, tar, compilers, fio, stress-ng, MPI with HDF5, editors' habits.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use ccpfs_semantics::{Door, Settings, World, finish, have, is_long, output_of, skip};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;

/// Makes a test of a function for the local file system, the mount and the preload library.
macro_rules! each_door {
    ($($scenario:ident needs $program:literal),* $(,)?) => { $(
        mod $scenario {
            use ccpfs_semantics::Door;

            #[test]
            fn on_a_plain_directory() {
                super::run(stringify!($scenario), $program, Door::Plain, super::$scenario);
            }

            #[test]
            fn on_a_mount() {
                super::run(stringify!($scenario), $program, Door::Mount(0), super::$scenario);
            }

            #[test]
            fn under_the_preload_library() {
                super::run(stringify!($scenario), $program, Door::Preload, super::$scenario);
            }
        }
    )* };
}

each_door! {
    git_clones_a_repository_that_it_finds_sound needs "git",
    sqlite_serves_two_writers needs "sqlite3",
    tar_gives_back_what_it_was_given needs "tar",
    a_c_project_is_made_by_two_jobs needs "gcc",
    fio_verifies_what_four_jobs_write_to_one_file needs "fio",
    stressors_of_stress_ng_find_nothing_wrong needs "stress-ng",
    editors_and_tools_leave_what_they_should needs "sed",
    python_finds_files_as_it_expects needs "python3",
}

/// Makes a test of a function for a mount of root's on which an ordinary user works.
macro_rules! for_users {
    ($($scenario:ident needs $program:literal),* $(,)?) => {
        mod an_ordinary_user_on_a_mount { $(
            #[test]
            fn $scenario() {
                super::run_for_user(stringify!($scenario), $program, super::$scenario);
            }
        )* }
    };
}

for_users! {
    git_clones_a_repository_that_it_finds_sound needs "git",
    a_c_project_is_made_by_two_jobs needs "gcc",
    stressors_of_stress_ng_find_nothing_wrong needs "stress-ng",
    editors_and_tools_leave_what_they_should needs "sed",
    python_finds_files_as_it_expects needs "python3",
}

fn run_for_user(test: &str, program: &str, scenario: impl FnOnce(&World, Door)) {
    if !have(test, program) {
        return;
    }
    if !World::can_mount() {
        return skip(test, "this build cannot mount");
    }
    match World::start(&Settings::default()).of_user() {
        Some(world) => scenario(&world, Door::Mount(0)),
        None => skip(test, "only root can run programs as another user"),
    }
}

fn run(test: &str, program: &str, door: Door, scenario: impl FnOnce(&World, Door)) {
    if !have(test, program) {
        return;
    }
    if matches!(door, Door::Mount(_)) && !World::can_mount() {
        skip(test, "this build cannot mount");
        return;
    }
    let world = if door == Door::Plain { World::plain() } else { World::start(&Settings::default()) };
    scenario(&world, door);
}

const IDENTITY: &str =
    "export HOME=$PWD GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b";

fn git_clones_a_repository_that_it_finds_sound(world: &World, door: Door) {
    let script = format!(
        "{IDENTITY}
        git init -q repo; cd repo
        for i in 1 2 3; do
            mkdir -p dir$i; for j in 1 2 3 4 5 6 7 8; do seq $i $((i * j * 500)) > dir$i/f$j; done
            git add .; git commit -qm $i
        done
        git mv dir1 moved; git commit -qm moved; git branch side HEAD~2; git merge -q -m merge side
        git gc -q; cd ..
        git clone -q --no-local repo clone; git clone -q --bare repo bare
        for r in repo clone bare; do git -C $r fsck --strict --no-progress; git -C $r rev-list --count HEAD; done
        cd clone; git status --porcelain; echo more >> moved/f1; git stash -q; git status --porcelain
        git stash pop -q; git commit -qam more; git push -q origin HEAD:pushed
        git -C ../repo worktree add -q ../tree pushed; tail -n 1 ../tree/moved/f1; diff -r moved ../tree/moved"
    );
    assert_eq!(output_of(&mut world.script(door, &script)), "4\n4\n4\nmore\n");
}

fn sqlite_serves_two_writers(world: &World, door: Door) {
    let rows = 40;
    // Write-ahead logs need shared memory; the preload library refuses it (S19).
    let journals: &[&str] = if door == Door::Preload {
        &["delete", "truncate", "persist"]
    } else {
        &["delete", "truncate", "persist", "wal"]
    };
    for journal in journals {
        let script = format!(
            "rm -f db*; sqlite3 db 'PRAGMA journal_mode={journal}; CREATE TABLE t(who, n, text, UNIQUE(who, n));' > mode
            [ \"$(cat mode)\" = {journal} ] || {{ cat mode; exit 1; }}
            writer() {{
                for n in $(seq {rows}); do
                    echo \".timeout 60000
                        BEGIN IMMEDIATE; INSERT INTO t VALUES('$1', $n, hex(randomblob(500))); COMMIT;
                        SELECT count(*) FROM t WHERE who = '$1';\"
                done | sqlite3 -bail db > out.$1
            }}
            writer a & first=$!; writer b & second=$!; wait $first; wait $second
            tail -n 1 out.a out.b -q
            sqlite3 db 'PRAGMA integrity_check; SELECT who, count(*), max(n) FROM t GROUP BY who ORDER BY who;'"
        );
        let said = output_of(&mut world.script(door, &script));
        assert_eq!(
            said,
            format!("{rows}\n{rows}\nok\na|{rows}|{rows}\nb|{rows}|{rows}\n"),
            "journal {journal}"
        );
    }
}

fn tar_gives_back_what_it_was_given(world: &World, door: Door) {
    let script = "umask 022; mkdir -p in/deep/er; for n in 1 2 3 4 5; do seq 1 $((n * 9000)) > in/f$n; done
        printf x > in/deep/er/small; : > in/empty; ln in/f1 in/hard; ln -s ../f2 in/deep/link; mkfifo in/pipe
        truncate -s 5M in/sparse; printf end >> in/sparse; chmod 4711 in/f3; chmod 1777 in/deep; chown 12:34 in/f4
        touch -d '2001-02-03 04:05:06.789' in/f5 in/deep/er; head -c 3000000 /dev/urandom > in/random
        tar --create --file archive.tar --sparse --xattrs in; tar --compare --file archive.tar
        mkdir out; tar --extract --file archive.tar --directory out --same-owner --preserve-permissions
        tar --create --directory in . | tar --extract --directory out
        diff -r --no-dereference --exclude pipe in out/in
        list() { (cd $1; find . -printf '%P %y %m %U %G %n %T@ %l ' -type f -printf '%s' -o -printf '\\n' | sort); }
        list in | grep -v '^ ' > one; list out/in | grep -v '^ ' > two; diff one two; echo same";
    assert_eq!(output_of(&mut world.script(door, script)), "same\n");
}

fn a_c_project_is_made_by_two_jobs(world: &World, door: Door) {
    let script = r#"mkdir -p project/src; cd project
        for n in $(seq 12); do
            printf '#include "all.h"\nint f%d(int x) { return x + %d; }\n' $n $n > src/f$n.c
            printf 'int f%d(int);\n' $n >> src/all.h
        done
        { printf '#include <stdio.h>\n#include "all.h"\nint main(void) { int x = 0;\n'
          for n in $(seq 12); do printf 'x = f%d(x);\n' $n; done
          printf 'printf("%%d\\n", x); return 0; }\n'; } > src/main.c
        cat > Makefile <<'MAKE'
OBJECTS := $(patsubst src/%.c,build/%.o,$(wildcard src/*.c))
program: libf.a build/main.o ; gcc -o $@ build/main.o libf.a
libf.a: $(filter-out build/main.o,$(OBJECTS)) ; ar rcs $@ $^
build/%.o: src/%.c src/all.h | build ; gcc -O1 -g -c -o $@ $<
build: ; mkdir -p $@
clean: ; rm -rf build program libf.a
MAKE
        make -s -j2; ./program; make -s -j2 clean; make -s -j2; ./program; make -q; strip program; ./program
        touch src/f3.c; make -q || echo old; make -s -j2; ./program; cp program copy; ./copy; cmp program copy"#;
    let mut command = world.script(door, script);
    // A program on ccPFS can only be started through the mount: the kernel reads it.
    assert_eq!(output_of(&mut command), "78\n78\n78\nold\n78\n78\n");
}

fn fio_verifies_what_four_jobs_write_to_one_file(world: &World, door: Door) {
    for (number, (pattern, block, engine, direct)) in [
        ("randwrite", 47_008, "psync", 0),
        ("write", 65_536, "pvsync", 0),
        ("randrw", 4_096, "psync", 1),
        ("write", 1 << 20, "sync", 0),
    ]
    .into_iter()
    .enumerate()
    {
        let part = block * if is_long() { 1_000 } else { 60 };
        let mut command = world.command(door, Path::new("fio"));
        command.args(["--name=job", "--numjobs=4", "--verify=crc32c", "--do_verify=1", "--verify_fatal=1"]);
        command.args(["--exitall_on_error", "--output-format=terse", "--fallocate=none"]);
        command.arg(format!("--filename=fio-{number}")).arg(format!("--ioengine={engine}"));
        command.arg(format!("--rw={pattern}")).arg(format!("--bs={block}")).arg(format!("--direct={direct}"));
        command.arg(format!("--size={part}")).arg(format!("--offset_increment={part}"));
        let results = output_of(&mut command);
        assert_eq!(results.lines().filter(|line| line.contains(";job;")).count(), 4, "{results}");
    }
}

/// Stressors of stress-ng that are about files, with verification.
const STRESSORS: &str = "access chdir chmod chown copy-file dentry dir dirdeep dirmany dup fallocate fcntl fiemap file-ioctl \
    filename flock fpunch fsize fstat getdent hdd io iomix lease link locka lockf lockofd mknod open readahead rename seek \
    sendfile splice symlink sync-file touch utime xattr";

/// Stressors that run at a time: most of them wait for their time to be over.
const AT_A_TIME: usize = 4;

fn stressors_of_stress_ng_find_nothing_wrong(world: &World, door: Door) {
    let stressors = Mutex::new(STRESSORS.split_whitespace());
    let next = || stressors.lock().unwrap().next();
    let work = || std::iter::from_fn(next).filter_map(|name| stress(world, door, name)).collect::<Vec<_>>();
    let failed: Vec<String> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..AT_A_TIME).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// Runs a stressor; says what it found wrong.
fn stress(world: &World, door: Door, stressor: &str) -> Option<String> {
    let (time, operations) = if is_long() { (20, 100_000) } else { (1, 100) };
    let mut command = world.command(door, Path::new("timeout"));
    command.args(["--kill-after=5", "120", "stress-ng", "--verify", "--temp-path", ".", "--timeout"]);
    // Two of these share a directory, which the first to end removes although the other may only be beginning.
    let instances = if matches!(stressor, "chmod" | "chown") { "1" } else { "2" };
    command.arg(time.to_string()).arg(format!("--{stressor}")).arg(instances);
    command.arg(format!("--{stressor}-ops")).arg(operations.to_string());
    let output = finish(&mut command);
    // 3: the stressor cannot run here, for lack of something.
    if matches!(output.status.code(), Some(0 | 3 | 4)) {
        return None;
    }
    let said = ccpfs_semantics::described(&output);
    let telling: Vec<&str> = said.lines().filter(|line| line.contains("fail")).take(5).collect();
    Some(format!("{stressor}: {}\n{}", output.status, telling.join("\n")))
}

fn editors_and_tools_leave_what_they_should(world: &World, door: Door) {
    let script = "seq 1 100000 > f; sed -i 's/^7$/seven/' f; sed -n 7p f; sort -rn f -o f; head -n 2 f; tail -n 1 f
        cp f g; cp --sparse=always f h; cmp f h; mv h d1; mkdir d; mv d1 d; ls d; install -m 640 g d/g; stat -c '%a %s' d/g
        split -n 3 f part.; cat part.* | cmp - f; dd if=f of=copy bs=7777 conv=notrunc status=none; cmp f copy
        dd if=/dev/zero of=copy bs=1000 seek=3 count=1 conv=notrunc status=none; cmp f copy | head -c 4 || true; echo
        truncate -s 10 copy; wc -c < copy; echo tail >> copy; tail -c 5 copy; rm copy; test ! -e copy
        (exec 5<> both; echo written >&5; exec 6< both; read -r line <&6; echo \"read $line\")
        tee t1 t2 < g > /dev/null; cmp t1 t2; grep -c 99 g; find . -name 't?' -size +500k | sort; du -a d | wc -l
        echo one > a; ln -sf a link; cat link; cp -a link link2; readlink link2; rm -rf d part.*; ls | tr '\\n' ' '";
    let said = output_of(&mut world.script(door, script));
    assert_eq!(
        said,
        "seven\n100000\n99999\nseven\nd1\n640 588899\nf co\n10\ntail\nread written\n3691\n./t1\n./t2\n3\none\na\na both f g link link2 t1 t2 ",
    );
}

fn python_finds_files_as_it_expects(world: &World, door: Door) {
    let program = r#"
import os, shutil, tempfile, mmap, subprocess, fcntl, sys
with tempfile.TemporaryDirectory(dir=".") as folder:
    path = os.path.join(folder, "f")
    with open(path, "w+b", buffering=0) as f:
        f.write(b"0123456789" * 50000)
        os.posix_fallocate(f.fileno(), 0, 600000)
        assert os.fstat(f.fileno()).st_size == 600000
        os.truncate(path, 500000)
        with mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_COPY) as m:
            assert m[499990:] == b"0123456789"
    shutil.copytree(folder, folder + "/copy", ignore=lambda *_: ["copy"])
    assert subprocess.check_output(["cmp", path, folder + "/copy/f"]) == b""
    with open(path, "r+") as f:
        fcntl.lockf(f, fcntl.LOCK_EX)
        f.seek(0, 2); f.write("end"); f.flush()
        assert subprocess.check_output(["tail", "-c", "4", path]) == b"9end"
    with tempfile.TemporaryFile(dir=folder) as t:
        t.write(b"x" * 100000); t.seek(99999)
        assert t.read() == b"x"
    assert sorted(os.listdir(folder)) == ["copy", "f"]
    assert sum(e.stat().st_size for e in os.scandir(folder) if e.is_file()) == 500003
    os.replace(path, folder + "/copy/f")
    assert not os.path.exists(path) and os.path.getsize(folder + "/copy/f") == 500003
print("all right")
"#;
    let mut command = world.command(door, Path::new("python3"));
    assert_eq!(output_of(command.args(["-c", program])), "all right\n");
}

#[test]
fn a_program_on_a_mount_and_one_with_preload_write_one_database() {
    let test = "a_program_on_a_mount_and_one_with_preload_write_one_database";
    if !have(test, "sqlite3") {
        return;
    }
    if !World::can_mount() {
        return skip(test, "this build cannot mount");
    }
    let world = World::start(&Settings::default());
    let _ = output_of(&mut world.script(Door::Preload, "sqlite3 db 'CREATE TABLE t(who, n)'"));
    let writer = |who: &str| {
        format!(
            "for n in $(seq 60); do echo \".timeout 60000
            BEGIN IMMEDIATE; INSERT INTO t VALUES('{who}', $n); COMMIT;\"; done | sqlite3 -bail db"
        )
    };
    let mut other = world.script(Door::Mount(1), &writer("other")).spawn().unwrap();
    let mut mounted = world.script(Door::Mount(0), &writer("mount")).spawn().unwrap();
    let _ = output_of(&mut world.script(Door::Preload, &writer("preload")));
    assert!(mounted.wait().unwrap().success() && other.wait().unwrap().success());
    let check = "sqlite3 db 'PRAGMA integrity_check; SELECT who, count(*) FROM t GROUP BY who ORDER BY who'";
    for door in [Door::Preload, Door::Mount(0), Door::Mount(1)] {
        let said = output_of(&mut world.script(door, check));
        assert_eq!(said, "ok\nmount|60\nother|60\npreload|60\n", "{door:?}");
    }
}

#[test]
fn ranks_on_a_mount_and_under_the_preload_library_write_one_hdf5_file() {
    let test = "ranks_on_a_mount_and_under_the_preload_library_write_one_hdf5_file";
    if !have(test, "mpicc.mpich") || !have(test, "pkg-config") {
        return;
    }
    let world = World::start(&Settings::default());
    let first = if World::can_mount() {
        Door::Mount(0)
    } else {
        skip(test, "this build cannot mount: both ranks run with the preload library");
        Door::Preload
    };
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../demo/hdf5_shared.c");
    let program = world.root(Door::Plain).join("hdf5_shared");
    let flags = output_of(Command::new("pkg-config").args(["--cflags", "--libs", "hdf5-mpich"]));
    let mut compile = Command::new("mpicc.mpich");
    compile.args(["-O1", "-o"]).arg(&program).arg(source).args(flags.split_whitespace());
    let _ = output_of(&mut compile);
    let preload = world.command(Door::Preload, &program);
    for how in ["--collective", "--independent"] {
        let mut ranks = Command::new("mpiexec.mpich");
        ranks.stdin(Stdio::null());
        let rank = |ranks: &mut Command, door: Door, work: &[&str]| {
            ranks.args(["-n", "1", "env"]);
            if door == Door::Preload {
                for (name, value) in preload.get_envs() {
                    if let Some(value) = value {
                        ranks.arg(format!("{}={}", name.to_string_lossy(), value.to_string_lossy()));
                    }
                }
            }
            let file = world.root(door).join(format!("shared{how}.h5"));
            ranks.arg(&program).arg(work[0]).arg(file).args(&work[1..]);
        };
        let work = ["--write", how, "--elements", "20011"];
        rank(&mut ranks, first, &work);
        ranks.arg(":");
        rank(&mut ranks, Door::Preload, &work);
        let _ = output_of(&mut ranks);
        for door in [first, Door::Preload] {
            let mut verify = Command::new("mpiexec.mpich");
            verify.stdin(Stdio::null());
            rank(&mut verify, door, &["--verify"]);
            let verdict = output_of(&mut verify);
            assert!(verdict.contains(" 0 wrong"), "{verdict}");
        }
    }
}
