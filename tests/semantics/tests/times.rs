//! Times of files, and what goes with them: what a program sees through each door is what it sees on the local file system.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use ccpfs_semantics::{Door, Settings, World, have, output_of, skip};

/// What all scripts begin with. A clock ticks while one `naps`.
const PREPARE: &str = r"
import ctypes, fcntl, os, struct, time
libc = ctypes.CDLL(None, use_errno=True)
def nap(): time.sleep(0.02) # // tidy: sleep, until all clocks have ticked
def made(name, mode=0o644):
    fd = os.open(name, os.O_CREAT | os.O_EXCL | os.O_RDWR)
    os.write(fd, b'five.')
    os.close(fd)
    os.chmod(name, mode)
    nap()
    return name
def moved(name, act):
    before = os.stat(name)
    nap()
    act()
    after = os.stat(name)
    times = [(k, getattr(before, f'st_{k}time_ns'), getattr(after, f'st_{k}time_ns')) for k in 'amc']
    return ''.join(k for k, b, a in times if a > b) + ''.join(k + '<' for k, b, a in times if a < b)
def opened(name, flags, act):
    fd = os.open(name, flags)
    try: return act(fd)
    finally: os.close(fd)
def allocate(mode, length):
    def act(fd):
        if libc.fallocate(fd, mode, ctypes.c_long(0), ctypes.c_long(length)) != 0: raise OSError(ctypes.get_errno(), 'fallocate')
    return act
";

/// Runs a Python program of root's, or of an ordinary user's, behind a door. It must say what is expected; without that, what it says
/// in a local directory.
fn check(test: &str, (door, of_user): (Door, bool), program: &str, expected: Option<&str>) {
    if !have(test, "python3") {
        return;
    }
    if matches!(door, Door::Mount(_)) && !World::can_mount() {
        return skip(test, "this build cannot mount");
    }
    let world = World::start(&Settings::default());
    let world = if of_user { world.of_user() } else { Some(world) };
    let Some(world) = world else { return skip(test, "only root can run programs as another user") };
    let script =
        format!("cat > program.py <<'END'\n{PREPARE}\n{program}\nEND\npython3 program.py; rm program.py");
    let said = output_of(&mut world.script(door, &script));
    match expected {
        Some(expected) => assert_eq!(said, expected),
        None => assert_eq!(
            said,
            output_of(&mut world.script(Door::Plain, &script)),
            "the second is a local directory"
        ),
    }
}

const ROOT_ON_A_MOUNT: (Door, bool) = (Door::Mount(0), false);
const USER_ON_A_MOUNT: (Door, bool) = (Door::Mount(0), true);

/// Changes that are no writes, each followed by a write within the same tick of the clock.
const WRITES_AFTER_CHANGES: &str = r"
changes = {
    'chmod': lambda fd, name: os.chmod(name, 0o600),
    'fchmod': lambda fd, name: os.fchmod(fd, 0o640),
    'chown': lambda fd, name: os.chown(name, os.geteuid(), os.getegid()),
    'link': lambda fd, name: os.link(name, name + '.2'),
    'rename': lambda fd, name: (os.rename(name, name + '.3'), os.rename(name + '.3', name)),
}
for what, change in changes.items():
    missed = 0
    for i in range(12):
        name = made(f'{what}{i}')
        fd = os.open(name, os.O_RDWR)
        os.write(fd, b'1')
        nap()
        before = os.fstat(fd).st_mtime_ns
        change(fd, name)
        os.fstat(fd)
        os.write(fd, b'2')
        missed += os.fstat(fd).st_mtime_ns <= before
        os.close(fd)
        missed += os.stat(name).st_mtime_ns <= before
    print(what, missed)
";

const NONE_MISSED: &str = "chmod 0\nfchmod 0\nchown 0\nlink 0\nrename 0\n";

//= semantics.md#S3 type=test
#[test]
fn regression_a_write_right_after_a_change_of_the_stub_moves_the_time_on_a_mount() {
    let test = "regression_a_write_right_after_a_change_of_the_stub_moves_the_time_on_a_mount";
    check(test, ROOT_ON_A_MOUNT, WRITES_AFTER_CHANGES, Some(NONE_MISSED));
}

//= semantics.md#S3 type=test
#[test]
fn regression_a_write_right_after_a_change_of_the_stub_moves_the_time_under_the_preload_library() {
    let test = "regression_a_write_right_after_a_change_of_the_stub_moves_the_time_under_the_preload_library";
    check(test, (Door::Preload, false), WRITES_AFTER_CHANGES, Some(NONE_MISSED));
}

#[test]
fn regression_a_write_that_takes_privileges_away_moves_the_time_as_well() {
    let program = r"
for i in range(12):
    name = made(f'f{i}', 0o6755)
    print(moved(name, lambda: opened(name, os.O_WRONLY, lambda fd: os.write(fd, b'x'))), oct(os.stat(name).st_mode))
";
    let test = "regression_a_write_that_takes_privileges_away_moves_the_time_as_well";
    check(test, USER_ON_A_MOUNT, program, Some(&"mc 0o100755\n".repeat(12)));
}

/// `chown` to nobody else, and `fallocate`, take set-user-id away; for the kernel they are requests for nothing.
const PRIVILEGES: &str = r"
for mode in (0o4755, 0o2755, 0o6777, 0o644):
    name = made(f'c{mode}', mode)
    print('chown', moved(name, lambda: os.chown(name, -1, -1)), oct(os.stat(name).st_mode))
    name = made(f'a{mode}', mode)
    opened(name, os.O_RDWR, allocate(0, 100))
    print('fallocate', oct(os.stat(name).st_mode))
";

/// What that says, if `fallocate` leaves these modes.
fn taken(user: &str, group: &str, both: &str) -> String {
    format!(
        "chown c 0o100755\nfallocate {user}\nchown c 0o100755\nfallocate {group}\n\
         chown c 0o100777\nfallocate {both}\nchown c 0o100644\nfallocate 0o100644\n"
    )
}

#[test]
fn regression_a_change_of_owner_to_nobody_else_takes_privileges_away() {
    let test = "regression_a_change_of_owner_to_nobody_else_takes_privileges_away";
    check(test, ROOT_ON_A_MOUNT, PRIVILEGES, Some(&taken("0o104755", "0o102755", "0o106777")));
}

#[test]
fn regression_a_users_change_of_owner_to_nobody_else_takes_privileges_away() {
    let test = "regression_a_users_change_of_owner_to_nobody_else_takes_privileges_away";
    check(test, USER_ON_A_MOUNT, PRIVILEGES, Some(&taken("0o100755", "0o100755", "0o100777")));
}

#[test]
fn space_that_is_set_aside_counts_as_a_change() {
    let program = r"
for mode, length in ((0, 3), (0, 9000), (1, 9000)):
    name = made(f'f{mode}{length}')
    print(mode, length, moved(name, lambda: opened(name, os.O_RDWR, allocate(mode, length))), os.stat(name).st_size)
";
    let expected = "0 3 mc 5\n0 9000 mc 9000\n1 9000 mc 5\n";
    check("space_that_is_set_aside_counts_as_a_change", ROOT_ON_A_MOUNT, program, Some(expected));
}

#[test]
fn reading_moves_the_time_of_access_as_the_namespaces_file_system_does() {
    let program = r"
def read(flags=0): return lambda: opened(name, os.O_RDONLY | flags, lambda fd: os.read(fd, 9))
name = made('f')
print(moved(name, read()), moved(name, read()))
os.utime(name, (1, 1))
print(moved(name, lambda: os.close(os.open(name, os.O_RDONLY))), moved(name, read(os.O_NOATIME)), moved(name, read()))
os.utime(name, (1, 1))
print(moved(name, lambda: opened(name, os.O_RDONLY, lambda fd: os.sendfile(os.open('/dev/null', os.O_WRONLY), fd, 0, 5))))
";
    let test = "reading_moves_the_time_of_access_as_the_namespaces_file_system_does";
    check(test, ROOT_ON_A_MOUNT, program, None);
}

#[test]
fn regression_the_holder_of_a_lock_is_named_after_it_has_unlocked_a_part() {
    let program = r"
name = made('f')
fd = os.open(name, os.O_RDWR)
fcntl.lockf(fd, fcntl.LOCK_EX, 10, 0)
fcntl.lockf(fd, fcntl.LOCK_UN, 1, 5)
child = os.fork()
if child == 0:
    other = os.open(name, os.O_RDWR)
    asked = struct.pack('hhqqixxxx', fcntl.F_WRLCK, 0, 7, 1, 0)
    _, _, start, length, holder = struct.unpack('hhqqixxxx', fcntl.fcntl(other, fcntl.F_GETLK, asked))
    print(start, length, holder == os.getppid(), flush=True)
    os._exit(0)
os.waitpid(child, 0)
";
    let test = "regression_the_holder_of_a_lock_is_named_after_it_has_unlocked_a_part";
    check(test, ROOT_ON_A_MOUNT, program, Some("6 4 True\n"));
}
