//! Byte-range locks and flock: between agents, doors and descriptors.

use ccpfs_semantics::{Agent, Stage, flags, scenarios};

const READ: i32 = libc::F_RDLCK;
const WRITE: i32 = libc::F_WRLCK;
const NONE: i32 = libc::F_UNLCK;

scenarios! { every door:
    a_write_lock_keeps_others_out_of_its_range,
    read_locks_are_shared,
    whoever_waits_for_a_lock_gets_it_when_it_is_given_back,
    locks_of_a_process_go_with_it,
    locks_of_a_process_go_with_any_descriptor_of_the_file,
    locks_of_an_open_file_stay_until_its_last_descriptor,
    a_part_of_a_lock_can_be_given_back_or_changed,
    whole_file_locks_exclude_each_other,
    a_whole_file_lock_waits_and_goes_with_its_process,
    a_lock_is_not_inherited_but_an_open_files_is,
    a_counter_under_a_lock_counts_everything,
    locks_need_the_right_kind_of_descriptor,
    two_who_wait_for_each_other_are_told,
}

fn open(agent: &Agent) -> i64 {
    agent.open("f", flags::MAKE).unwrap()
}

fn refused(result: Result<(), ccpfs_semantics::Errno>) {
    let errno = result.unwrap_err().0;
    assert!([libc::EAGAIN, libc::EACCES].contains(&errno), "{errno}");
}

//= semantics.md#S20 type=test
fn a_write_lock_keeps_others_out_of_its_range(stage: &Stage) {
    let (a, b) = (&stage.a, &stage.b);
    let (fa, fb) = (open(a), open(b));
    for (set, get) in [("setlk", "getlk"), ("ofd_setlk", "ofd_getlk")] {
        a.lock(set, fa, WRITE, 10, 10).unwrap();
        refused(b.lock(set, fb, WRITE, 19, 1));
        refused(b.lock(set, fb, READ, 0, 0));
        b.lock(set, fb, WRITE, 0, 10).unwrap();
        b.lock(set, fb, WRITE, 20, 0).unwrap();
        assert_eq!(b.getlk(get, fb, READ, 0, 0).unwrap(), WRITE);
        assert_eq!(b.getlk(get, fb, WRITE, 0, 10).unwrap(), NONE);
        assert_eq!(a.getlk(get, fa, WRITE, 10, 10).unwrap(), NONE, "one's own lock is not in the way");
        a.lock(set, fa, NONE, 0, 0).unwrap();
        b.lock(set, fb, WRITE, 0, 0).unwrap();
        b.lock(set, fb, NONE, 0, 0).unwrap();
    }
}

//= semantics.md#S20 type=test
fn read_locks_are_shared(stage: &Stage) {
    let (a, b) = (&stage.a, &stage.b);
    let (fa, fb) = (open(a), open(b));
    for set in ["setlk", "ofd_setlk"] {
        a.lock(set, fa, READ, 0, 100).unwrap();
        b.lock(set, fb, READ, 50, 100).unwrap();
        refused(b.lock(set, fb, WRITE, 50, 1));
        b.lock(set, fb, WRITE, 100, 50).unwrap();
        refused(a.lock(set, fa, READ, 100, 1));
        a.lock(set, fa, NONE, 0, 0).unwrap();
        b.lock(set, fb, WRITE, 0, 0).unwrap();
        b.lock(set, fb, NONE, 0, 0).unwrap();
    }
}

//= semantics.md#S20 type=test
fn whoever_waits_for_a_lock_gets_it_when_it_is_given_back(stage: &Stage) {
    let (a, b) = (&stage.a, &stage.b);
    let (fa, fb) = (open(a), open(b));
    for (set, wait) in [("setlk", "setlkw"), ("ofd_setlk", "ofd_setlkw")] {
        for round in 0..10_u64 {
            a.lock(set, fa, WRITE, 0, 0).unwrap();
            let waiting = b.begin_lock(wait, fb, WRITE, 5, 1);
            a.pwrite(fa, &round.to_le_bytes(), 0).unwrap();
            assert!(waiting.now().is_none(), "it waits while the lock is held");
            a.lock(set, fa, NONE, 0, 0).unwrap();
            waiting.wait().unwrap();
            assert_eq!(
                b.pread(fb, 8, 0).unwrap(),
                round.to_le_bytes(),
                "what was written under the lock is seen"
            );
            b.lock(set, fb, NONE, 0, 0).unwrap();
        }
    }
}

//= semantics.md#S20 type=test
fn locks_of_a_process_go_with_it(stage: &Stage) {
    let b = &stage.b;
    let fb = open(b);
    for (set, wait) in [("setlk", "setlkw"), ("ofd_setlk", "ofd_setlkw")] {
        for dies in [true, false] {
            let a = stage.another_a();
            let fa = open(&a);
            a.lock(set, fa, WRITE, 0, 0).unwrap();
            let waiting = b.begin_lock(wait, fb, WRITE, 0, 1);
            refused(b.lock(set, fb, READ, 7, 1));
            if dies {
                a.kill();
            } else {
                a.leave();
            }
            waiting.wait().unwrap();
            b.lock(set, fb, NONE, 0, 0).unwrap();
        }
    }
}

//= semantics.md#S20 type=test
fn locks_of_a_process_go_with_any_descriptor_of_the_file(stage: &Stage) {
    let (a, b) = (&stage.a, &stage.b);
    let (fa, fb) = (open(a), open(b));
    let second = open(a);
    a.lock("setlk", fa, WRITE, 0, 0).unwrap();
    refused(b.lock("setlk", fb, READ, 0, 1));
    // Reading, asking and writing close nothing.
    a.pwrite(fa, b"x", 0).unwrap();
    a.stat("f").unwrap();
    a.fsync(fa).unwrap();
    refused(b.lock("setlk", fb, READ, 0, 1));
    a.close(second).unwrap();
    b.lock("setlk", fb, READ, 0, 1).unwrap();
}

//= semantics.md#S20 type=test
fn locks_of_an_open_file_stay_until_its_last_descriptor(stage: &Stage) {
    let (a, b) = (&stage.a, &stage.b);
    let (fa, fb) = (open(a), open(b));
    let second = open(a);
    a.lock("ofd_setlk", fa, WRITE, 0, 0).unwrap();
    let copy = a.dup(fa).unwrap();
    a.close(second).unwrap();
    a.close(fa).unwrap();
    refused(b.lock("ofd_setlk", fb, WRITE, 0, 1));
    // Two open files of one process exclude each other as those of two do.
    let third = open(a);
    refused(a.lock("ofd_setlk", third, READ, 0, 1));
    a.close(copy).unwrap();
    // The kernel tells a mount of the last close a moment after it, so that this may have to wait.
    b.begin_lock("ofd_setlkw", fb, WRITE, 0, 1).wait().unwrap();
    refused(a.lock("ofd_setlk", third, READ, 0, 1));
}

//= semantics.md#S20 type=test
fn a_part_of_a_lock_can_be_given_back_or_changed(stage: &Stage) {
    let (a, b) = (&stage.a, &stage.b);
    let (fa, fb) = (open(a), open(b));
    for set in ["setlk", "ofd_setlk"] {
        a.lock(set, fa, WRITE, 0, 100).unwrap();
        a.lock(set, fa, NONE, 40, 20).unwrap();
        b.lock(set, fb, WRITE, 40, 20).unwrap();
        refused(b.lock(set, fb, WRITE, 39, 1));
        refused(b.lock(set, fb, WRITE, 60, 1));
        a.lock(set, fa, READ, 0, 40).unwrap();
        b.lock(set, fb, READ, 0, 40).unwrap();
        refused(b.lock(set, fb, READ, 60, 1));
        a.lock(set, fa, NONE, 0, 0).unwrap();
        b.lock(set, fb, NONE, 0, 0).unwrap();
    }
}

//= semantics.md#S20 type=test
fn whole_file_locks_exclude_each_other(stage: &Stage) {
    let (a, b) = (&stage.a, &stage.b);
    let (fa, fb) = (open(a), open(b));
    let now = libc::LOCK_NB;
    a.flock(fa, libc::LOCK_SH).unwrap();
    b.flock(fb, libc::LOCK_SH | now).unwrap();
    assert_eq!(b.flock(fb, libc::LOCK_EX | now).unwrap_err().0, libc::EWOULDBLOCK);
    a.flock(fa, libc::LOCK_UN).unwrap();
    b.flock(fb, libc::LOCK_EX | now).unwrap();
    assert_eq!(a.flock(fa, libc::LOCK_SH | now).unwrap_err().0, libc::EWOULDBLOCK);
    // The lock is that of the open file: a copy of the descriptor has it too.
    let copy = b.dup(fb).unwrap();
    b.close(fb).unwrap();
    assert_eq!(a.flock(fa, libc::LOCK_SH | now).unwrap_err().0, libc::EWOULDBLOCK);
    b.close(copy).unwrap();
    // The kernel tells a mount of the last close a moment after it, so that this may have to wait.
    a.flock(fa, libc::LOCK_EX).unwrap();
}

//= semantics.md#S20 type=test
fn a_whole_file_lock_waits_and_goes_with_its_process(stage: &Stage) {
    let (a, b) = (stage.another_a(), &stage.b);
    let (fa, fb) = (open(&a), open(b));
    a.flock(fa, libc::LOCK_EX).unwrap();
    let waiting = b.begin(&format!("flock {fb} {}", libc::LOCK_EX), &[]);
    a.pwrite(fa, b"kept", 0).unwrap();
    a.fsync(fa).unwrap();
    assert!(waiting.now().is_none());
    a.kill();
    waiting.wait().unwrap();
    assert_eq!(b.pread(fb, 4, 0).unwrap(), b"kept");
}

//= semantics.md#S20 type=test
fn a_lock_is_not_inherited_but_an_open_files_is(stage: &Stage) {
    let (a, b) = (&stage.a, &stage.b);
    let (fa, fb) = (open(a), open(b));
    a.lock("setlk", fa, WRITE, 0, 0).unwrap();
    // The child is another process; its end gives nothing of its parent's back.
    let child = a.forked(&format!("setlk {fa} {READ} 0 1"), &[]).unwrap_err().0;
    assert!([libc::EAGAIN, libc::EACCES].contains(&child));
    refused(b.lock("setlk", fb, READ, 0, 1));
    a.lock("setlk", fa, NONE, 0, 0).unwrap();
    a.lock("ofd_setlk", fa, WRITE, 0, 0).unwrap();
    a.forked(&format!("ofd_setlk {fa} {READ} 0 1"), &[]).unwrap();
    b.lock("ofd_setlk", fb, READ, 0, 1).unwrap();
    refused(b.lock("ofd_setlk", fb, READ, 1, 1));
}

//= semantics.md#S2 type=test
//= semantics.md#S20 type=test
fn a_counter_under_a_lock_counts_everything(stage: &Stage) {
    const TURNS: u64 = 60;
    let (c, d) = (stage.another_a(), stage.another_b());
    stage.a.put("f", &0_u64.to_le_bytes()).unwrap();
    let crew = [
        (&stage.a, "setlkw", "setlk"),
        (&stage.b, "setlkw", "setlk"),
        (&c, "ofd_setlkw", "ofd_setlk"),
        (&d, "ofd_setlkw", "ofd_setlk"),
    ];
    std::thread::scope(|scope| {
        for (agent, wait, set) in crew {
            scope.spawn(move || {
                let fd = open(agent);
                for _ in 0..TURNS {
                    agent.begin_lock(wait, fd, WRITE, 0, 8).wait().unwrap();
                    let bytes = agent.pread(fd, 8, 0).unwrap();
                    let count = u64::from_le_bytes(bytes.try_into().unwrap()) + 1;
                    agent.pwrite(fd, &count.to_le_bytes(), 0).unwrap();
                    agent.lock(set, fd, NONE, 0, 8).unwrap();
                }
            });
        }
    });
    assert_eq!(stage.b.get("f").unwrap(), (4 * TURNS).to_le_bytes());
}

fn locks_need_the_right_kind_of_descriptor(stage: &Stage) {
    let a = &stage.a;
    a.put("f", b"x").unwrap();
    let reader = a.open("f", flags::READ).unwrap();
    let writer = a.open("f", flags::WRITE).unwrap();
    for set in ["setlk", "ofd_setlk"] {
        assert_eq!(a.lock(set, reader, WRITE, 0, 1).unwrap_err().0, libc::EBADF);
        assert_eq!(a.lock(set, writer, READ, 0, 1).unwrap_err().0, libc::EBADF);
        a.lock(set, reader, READ, 0, 1).unwrap();
        a.lock(set, reader, NONE, 0, 1).unwrap();
    }
    a.flock(reader, libc::LOCK_EX | libc::LOCK_NB).unwrap();
    assert_eq!(a.lock("setlk", reader, 77, 0, 1).unwrap_err().0, libc::EINVAL);
}

//= semantics.md#S20 type=test
fn two_who_wait_for_each_other_are_told(stage: &Stage) {
    let (a, b) = (&stage.a, &stage.b);
    let (fa, fb) = (open(a), open(b));
    a.lock("setlk", fa, WRITE, 0, 1).unwrap();
    b.lock("setlk", fb, WRITE, 1, 1).unwrap();
    let first = a.begin_lock("setlkw", fa, WRITE, 1, 1);
    let second = b.begin_lock("setlkw", fb, WRITE, 0, 1);
    // One of them is refused; then it gives up its lock, and the other gets both.
    let told = loop {
        match (first.now(), second.now()) {
            (Some(outcome), None) => break (outcome, a, fa),
            (None, Some(outcome)) => break (outcome, b, fb),
            (None, None) => std::thread::yield_now(),
            both => panic!("one goes on: {both:?}"),
        }
    };
    assert_eq!(told.0.unwrap_err().0, libc::EDEADLK);
    told.1.lock("setlk", told.2, NONE, 0, 0).unwrap();
    // The answer of the one that was told has been taken already.
    let other = if told.2 == fa && std::ptr::eq(told.1, a) { second } else { first };
    other.wait().unwrap();
}
