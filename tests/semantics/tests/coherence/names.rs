//! Names, links, directories and attributes.

use ccpfs_semantics::{Agent, Errno, Stage, flags, scenarios};
use std::collections::BTreeSet;
use std::thread;

scenarios! { every door:
    exactly_one_of_many_makes_a_file_exclusively,
    exactly_one_of_many_makes_a_directory,
    exactly_one_rename_of_a_file_succeeds,
    a_replaced_file_is_always_there_and_whole,
    renaming_over_an_open_file_leaves_it_to_those_who_have_it_open,
    a_file_that_another_unlinks_lives_until_it_is_closed,
    a_file_that_its_user_unlinks_is_gone_for_others_and_lives_for_him,
    an_unlinked_file_lives_in_a_child,
    a_name_made_again_is_another_file,
    hard_links_are_one_file,
    the_last_link_takes_the_file,
    a_directory_is_listed_while_it_changes,
    many_names_are_listed_once_each,
    directories_are_removed_only_when_empty,
    renames_with_flags_exchange_and_refuse,
    renames_of_directories_take_their_contents_along,
    a_temporary_file_gets_a_name_when_it_is_complete,
    a_temporary_file_that_is_exclusive_gets_no_name,
    symbolic_links_are_followed_and_read,
    attributes_are_seen_by_the_other,
    extended_attributes_are_seen_by_the_other,
    new_files_have_the_mode_that_the_mask_leaves,
    a_directory_can_give_its_group_to_what_is_made_in_it,
    others_are_kept_out_by_permissions,
    a_file_without_permissions_serves_who_has_it_open,
    special_files_are_what_they_are,
    the_file_system_has_a_size,
    the_same_inode_is_seen_from_everywhere,
    directory_operations_of_many_end_in_one_truth,
}

/// Both agents and one more behind each door.
fn crew(stage: &Stage) -> (Agent, Agent) {
    (stage.another_a(), stage.another_b())
}

//= semantics.md#S14 type=test
fn exactly_one_of_many_makes_a_file_exclusively(stage: &Stage) {
    let (c, d) = crew(stage);
    for number in 0..25 {
        let call = format!("open f{number} {} 420", flags::NEW);
        let tries = [&stage.a, &stage.b, &c, &d].map(|agent| agent.queue(&call, &[]));
        let errors: Vec<i32> =
            tries.into_iter().filter_map(|attempt| attempt.wait().err()).map(|e| e.0).collect();
        assert_eq!(errors, [libc::EEXIST; 3]);
    }
}

//= semantics.md#S14 type=test
fn exactly_one_of_many_makes_a_directory(stage: &Stage) {
    let (c, d) = crew(stage);
    for number in 0..25 {
        let call = format!("mkdir d{number} 493");
        let tries = [&stage.a, &stage.b, &c, &d].map(|agent| agent.queue(&call, &[]));
        let errors: Vec<i32> =
            tries.into_iter().filter_map(|attempt| attempt.wait().err()).map(|e| e.0).collect();
        assert_eq!(errors, [libc::EEXIST; 3]);
    }
}

//= semantics.md#S16 type=test
fn exactly_one_rename_of_a_file_succeeds(stage: &Stage) {
    let (a, b) = (&stage.a, &stage.b);
    for number in 0..25 {
        a.put(&format!("f{number}"), format!("contents {number}").as_bytes()).unwrap();
        let first = a.queue(&format!("rename f{number} g{number}"), &[]);
        let second = b.queue(&format!("rename f{number} h{number}"), &[]);
        let (first, second) = (first.wait(), second.wait());
        let name = match (first, second) {
            (Ok(_), Err(e)) if e.0 == libc::ENOENT => format!("g{number}"),
            (Err(e), Ok(_)) if e.0 == libc::ENOENT => format!("h{number}"),
            other => panic!("{other:?}"),
        };
        assert_eq!(b.get(&name).unwrap(), format!("contents {number}").as_bytes());
        assert_eq!(a.readdir(".").unwrap().len(), number + 1);
    }
}

//= semantics.md#S16 type=test
fn a_replaced_file_is_always_there_and_whole(stage: &Stage) {
    let (a, b) = (&stage.a, &stage.b);
    let length = 100_000;
    a.put("f", &vec![1; length]).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 2..=40 {
                a.put("new", &vec![number; length]).unwrap();
                a.rename("new", "f").unwrap();
            }
        });
        scope.spawn(|| {
            let mut last = 0;
            for _ in 0..60 {
                let fd = match b.open("f", flags::READ) {
                    // Replaced twice, each time between the kernel's look at the name and its open (S25).
                    Err(Errno(libc::ESTALE)) if stage.second_mounts() => continue,
                    opened => opened.unwrap(),
                };
                let seen = b.pread(fd, length + 1, 0).unwrap();
                assert_eq!((seen.len(), seen.iter().all(|byte| *byte == seen[0])), (length, true));
                assert!(seen[0] >= last, "{} after {last}", seen[0]);
                last = seen[0];
                b.close(fd).unwrap();
            }
        });
    });
    assert_eq!(b.get("f").unwrap(), vec![40; length]);
}

//= semantics.md#S16 type=test
fn renaming_over_an_open_file_leaves_it_to_those_who_have_it_open(stage: &Stage) {
    let (a, b) = (&stage.a, &stage.b);
    a.put("f", &vec![1; 100_000]).unwrap();
    let old = a.open("f", flags::BOTH).unwrap();
    b.put("g", b"new").unwrap();
    b.rename("g", "f").unwrap();
    assert_eq!(a.pread(old, 200_000, 0).unwrap(), vec![1; 100_000]);
    a.pwrite(old, b"more", 200_000).unwrap();
    assert_eq!(a.fstat(old).unwrap().size, 200_004);
    assert_eq!(a.fstat(old).unwrap().nlink, 0);
    assert_eq!((a.get("f").unwrap(), b.get("f").unwrap()), (b"new".to_vec(), b"new".to_vec()));
    a.fsync(old).unwrap();
    assert_eq!(a.pread(old, 10, 200_000).unwrap(), b"more");
    a.close(old).unwrap();
    assert_eq!(b.readdir(".").unwrap(), ["f"]);
}

//= semantics.md#S15 type=test
fn a_file_that_another_unlinks_lives_until_it_is_closed(stage: &Stage) {
    let (a, b) = (&stage.a, &stage.b);
    let fa = a.open("f", flags::NEW).unwrap();
    a.write(fa, &vec![3; 150_000]).unwrap();
    b.unlink("f").unwrap();
    assert_eq!(a.stat("f").unwrap_err().0, libc::ENOENT);
    assert_eq!(b.open("f", flags::READ).unwrap_err().0, libc::ENOENT);
    let stat = a.fstat(fa).unwrap();
    assert_eq!((stat.nlink, stat.size), (0, 150_000));
    assert_eq!(a.pread(fa, 200_000, 0).unwrap(), vec![3; 150_000]);
    a.pwrite(fa, b"still", 150_000).unwrap();
    a.fsync(fa).unwrap();
    a.ftruncate(fa, 150_003).unwrap();
    assert_eq!(a.pread(fa, 10, 150_000).unwrap(), b"sti");
    a.close(fa).unwrap();
    assert_eq!(b.readdir(".").unwrap(), Vec::<String>::new());
}

//= semantics.md#S15 type=test
fn a_file_that_its_user_unlinks_is_gone_for_others_and_lives_for_him(stage: &Stage) {
    let (a, b) = (&stage.a, &stage.b);
    let fa = a.open("f", flags::NEW).unwrap();
    let fb = b.open("f", flags::BOTH).unwrap();
    a.write(fa, b"shared by two").unwrap();
    a.unlink("f").unwrap();
    assert_eq!(b.open("f", flags::READ).unwrap_err().0, libc::ENOENT);
    // Both go on with it, and see each other's writes.
    b.pwrite(fb, b"SHARED", 0).unwrap();
    assert_eq!(a.pread(fa, 20, 0).unwrap(), b"SHARED by two");
    a.close(fa).unwrap();
    assert_eq!(b.pread(fb, 20, 0).unwrap(), b"SHARED by two");
    b.pwrite(fb, b"alone", 100_000).unwrap();
    assert_eq!(b.fstat(fb).unwrap().size, 100_005);
    b.close(fb).unwrap();
}

//= semantics.md#S15 type=test
fn an_unlinked_file_lives_in_a_child(stage: &Stage) {
    let (a, b) = (&stage.a, &stage.b);
    let fd = a.open("f", flags::NEW).unwrap();
    a.write(fd, b"inherited").unwrap();
    b.unlink("f").unwrap();
    assert_eq!(a.forked(&format!("pread {fd} 20 0"), &[]).unwrap().bytes, b"inherited");
    a.forked(&format!("pwrite {fd} 9"), b" twice").unwrap();
    assert_eq!(a.pread(fd, 20, 0).unwrap(), b"inherited twice");
}

//= semantics.md#S15 type=test
fn a_name_made_again_is_another_file(stage: &Stage) {
    let (a, b) = (&stage.a, &stage.b);
    for round in 0..15_u8 {
        let fa = a.open("f", flags::NEW).unwrap();
        a.write(fa, &vec![round; 70_000]).unwrap();
        assert_eq!(b.get("f").unwrap(), vec![round; 70_000]);
        b.unlink("f").unwrap();
        let fb = b.open("f", flags::NEW).unwrap();
        assert_eq!(b.fstat(fb).unwrap().size, 0);
        assert_eq!(a.stat("f").unwrap().size, 0);
        a.unlink("f").unwrap();
        a.close(fa).unwrap();
        b.close(fb).unwrap();
    }
}

//= semantics.md#S14 type=test
fn hard_links_are_one_file(stage: &Stage) {
    let (a, b) = (&stage.a, &stage.b);
    a.put("f", b"one").unwrap();
    b.names("link", "f", "g").unwrap();
    assert_eq!(a.stat("f").unwrap().nlink, 2);
    assert_eq!(a.stat("f").unwrap().ino, a.stat("g").unwrap().ino);
    let fg = b.open("g", flags::BOTH).unwrap();
    b.pwrite(fg, b"two and more", 0).unwrap();
    assert_eq!(a.get("f").unwrap(), b"two and more");
    assert_eq!(a.stat("g").unwrap().size, 12);
    assert_eq!(a.names("link", "f", "g").unwrap_err().0, libc::EEXIST);
    assert_eq!(a.names("link", "missing", "h").unwrap_err().0, libc::ENOENT);
    a.name_mode("mkdir", "d", 0o755).unwrap();
    assert_eq!(a.names("link", "d", "h").unwrap_err().0, libc::EPERM);
    a.names("link", "g", "d/h").unwrap();
    assert_eq!(b.fstat(fg).unwrap().nlink, 3);
    // A rename onto another name of the same file does nothing.
    b.rename("f", "g").unwrap();
    assert_eq!(a.stat("f").unwrap().nlink, 3);
}

//= semantics.md#S15 type=test
fn the_last_link_takes_the_file(stage: &Stage) {
    let (a, b) = (&stage.a, &stage.b);
    a.put("f", &vec![4; 80_000]).unwrap();
    a.names("link", "f", "g").unwrap();
    b.unlink("f").unwrap();
    assert_eq!(a.stat("g").unwrap().nlink, 1);
    assert_eq!(b.get("g").unwrap(), vec![4; 80_000]);
    b.put("h", b"other").unwrap();
    a.names("link", "g", "k").unwrap();
    b.rename("h", "g").unwrap();
    assert_eq!(a.get("k").unwrap(), vec![4; 80_000]);
    b.unlink("k").unwrap();
    assert_eq!(a.get("g").unwrap(), b"other");
}

fn a_directory_is_listed_while_it_changes(stage: &Stage) {
    let (a, b) = (&stage.a, &stage.b);
    a.name_mode("mkdir", "d", 0o755).unwrap();
    let stay: BTreeSet<String> = (0..150).map(|n| format!("stays-{n}")).collect();
    for name in &stay {
        let fd = a.open(&format!("d/{name}"), flags::NEW).unwrap();
        a.close(fd).unwrap();
    }
    for round in 0..3 {
        let directory = a.opendir("d").unwrap();
        let mut seen = Vec::new();
        let mut step = 0;
        while let Some(name) = a.nextdir(directory).unwrap() {
            seen.push(name);
            step += 1;
            let fd = b.open(&format!("d/comes-{round}-{step}"), flags::NEW).unwrap();
            b.close(fd).unwrap();
            if step % 2 == 0 {
                b.unlink(&format!("d/comes-{round}-{step}")).unwrap();
            }
            assert!(step < 2_000, "the listing ends");
        }
        let stayed: Vec<&String> = seen.iter().filter(|name| name.starts_with("stays-")).collect();
        assert_eq!(stayed.len(), stay.len(), "no name that stays is missed or seen twice");
        assert_eq!(stayed.into_iter().cloned().collect::<BTreeSet<_>>(), stay);
        assert_eq!(seen.iter().filter(|name| *name == "." || *name == "..").count(), 2);
        a.call(&format!("closedir {directory}"), &[]).unwrap();
    }
    let directory = b.opendir("d").unwrap();
    for name in &stay {
        a.unlink(&format!("d/{name}")).unwrap();
    }
    b.call(&format!("rewinddir {directory}"), &[]).unwrap();
    while let Some(name) = b.nextdir(directory).unwrap() {
        assert!(!name.starts_with("stays-"), "{name} is gone");
    }
}

fn many_names_are_listed_once_each(stage: &Stage) {
    let (a, b) = (&stage.a, &stage.b);
    let mut made: Vec<_> = Vec::new();
    for number in 0..1_200 {
        let name = format!("a-rather-long-name-so-that-one-buffer-does-not-hold-them-all-{number:05}");
        made.push(a.queue(&format!("mknod {name} {}", libc::S_IFREG | 0o600), &[]));
    }
    for call in made {
        call.wait().unwrap();
    }
    let names = b.readdir(".").unwrap();
    assert_eq!(names.len(), 1_200);
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), 1_200);
    assert_eq!(b.stat(&names[777]).unwrap().size, 0);
}

fn directories_are_removed_only_when_empty(stage: &Stage) {
    let (a, b) = (&stage.a, &stage.b);
    a.name_mode("mkdir", "d", 0o755).unwrap();
    b.name_mode("mkdir", "d/e", 0o755).unwrap();
    assert_eq!(b.stat("d").unwrap().nlink, a.stat("d").unwrap().nlink);
    b.put("d/e/f", b"x").unwrap();
    assert_eq!(a.name("rmdir", "d").unwrap_err().0, libc::ENOTEMPTY);
    assert_eq!(a.name("rmdir", "d/e/f").unwrap_err().0, libc::ENOTDIR);
    assert!([libc::EISDIR, libc::EPERM].contains(&a.unlink("d").unwrap_err().0));
    a.unlink("d/e/f").unwrap();
    a.name("rmdir", "d/e").unwrap();
    b.name("rmdir", "d").unwrap();
    assert_eq!(a.stat("d").unwrap_err().0, libc::ENOENT);
    assert_eq!(b.name("rmdir", "d").unwrap_err().0, libc::ENOENT);
    // A directory that is somebody's place may go; nothing can be made in it.
    a.name_mode("mkdir", "place", 0o755).unwrap();
    a.name("chdir", "place").unwrap();
    b.name("rmdir", "place").unwrap();
    assert_eq!(a.open("f", flags::NEW).unwrap_err().0, libc::ENOENT);
}

//= semantics.md#S16 type=test
fn renames_with_flags_exchange_and_refuse(stage: &Stage) {
    let (a, b) = (&stage.a, &stage.b);
    a.put("f", b"first").unwrap();
    b.put("g", b"second").unwrap();
    let none = a.names_flags("renameat2", "f", "g", libc::RENAME_NOREPLACE);
    assert_eq!(none.unwrap_err().0, libc::EEXIST);
    a.names_flags("renameat2", "f", "g", libc::RENAME_EXCHANGE).unwrap();
    assert_eq!((b.get("f").unwrap(), b.get("g").unwrap()), (b"second".to_vec(), b"first".to_vec()));
    b.names_flags("renameat2", "f", "h", libc::RENAME_NOREPLACE).unwrap();
    assert_eq!(a.get("h").unwrap(), b"second");
    assert_eq!(a.names_flags("renameat2", "g", "none", libc::RENAME_EXCHANGE).unwrap_err().0, libc::ENOENT);
    let both = libc::RENAME_EXCHANGE | libc::RENAME_NOREPLACE;
    assert_eq!(a.names_flags("renameat2", "g", "h", both).unwrap_err().0, libc::EINVAL);
}

fn renames_of_directories_take_their_contents_along(stage: &Stage) {
    let (a, b) = (&stage.a, &stage.b);
    a.name_mode("mkdir", "d", 0o755).unwrap();
    a.name_mode("mkdir", "d/inner", 0o755).unwrap();
    a.put("d/inner/f", b"deep").unwrap();
    let open = a.open("d/inner/f", flags::BOTH).unwrap();
    b.rename("d", "e").unwrap();
    assert_eq!(a.get("e/inner/f").unwrap(), b"deep");
    assert_eq!(a.stat("d").unwrap_err().0, libc::ENOENT);
    a.pwrite(open, b"DEEP", 0).unwrap();
    assert_eq!(b.get("e/inner/f").unwrap(), b"DEEP");
    assert_eq!(a.rename("e", "e/inner/x").unwrap_err().0, libc::EINVAL);
    b.name_mode("mkdir", "full", 0o755).unwrap();
    b.put("full/f", b"").unwrap();
    assert_eq!(a.rename("e", "full").unwrap_err().0, libc::ENOTEMPTY);
    assert_eq!(a.rename("e/inner/f", "full").unwrap_err().0, libc::EISDIR);
    assert_eq!(a.rename("e", "full/f").unwrap_err().0, libc::ENOTDIR);
    b.unlink("full/f").unwrap();
    a.rename("e", "full").unwrap();
    assert_eq!(b.get("full/inner/f").unwrap(), b"DEEP");
}

fn a_temporary_file_gets_a_name_when_it_is_complete(stage: &Stage) {
    let (a, b) = (&stage.a, &stage.b);
    a.name_mode("mkdir", "d", 0o755).unwrap();
    let fd = a.open_mode("d", libc::O_TMPFILE | libc::O_RDWR, 0o640).unwrap();
    a.write(fd, &vec![8; 100_000]).unwrap();
    assert_eq!(b.readdir("d").unwrap(), Vec::<String>::new());
    let stat = a.fstat(fd).unwrap();
    assert_eq!((stat.size, stat.nlink, stat.permissions()), (100_000, 0, 0o640));
    let link =
        |name: &str| a.names_flags("linkat", &format!("/proc/self/fd/{fd}"), name, libc::AT_SYMLINK_FOLLOW);
    link("d/f").unwrap();
    assert_eq!(b.get("d/f").unwrap(), vec![8; 100_000]);
    assert_eq!(link("d/f").unwrap_err().0, libc::EEXIST);
    a.pwrite(fd, b"more", 100_000).unwrap();
    assert_eq!(b.stat("d/f").unwrap().size, 100_004);
    assert_eq!(b.stat("d/f").unwrap().nlink, 1);
    // One that never gets a name goes with its last descriptor.
    let fd = b.open_mode("d", libc::O_TMPFILE | libc::O_RDWR, 0o600).unwrap();
    b.write(fd, b"gone").unwrap();
    b.close(fd).unwrap();
    assert_eq!(a.readdir("d").unwrap(), ["f"]);
}

fn a_temporary_file_that_is_exclusive_gets_no_name(stage: &Stage) {
    let a = &stage.a;
    let fd = a.open_mode(".", libc::O_TMPFILE | libc::O_RDWR | libc::O_EXCL, 0o600).unwrap();
    a.write(fd, b"secret").unwrap();
    let linked = a.names_flags("linkat", &format!("/proc/self/fd/{fd}"), "f", libc::AT_SYMLINK_FOLLOW);
    assert_eq!(linked.unwrap_err().0, libc::ENOENT);
    assert_eq!(a.pread(fd, 10, 0).unwrap(), b"secret");
    assert_eq!(a.open_mode(".", libc::O_TMPFILE, 0o600).unwrap_err().0, libc::EINVAL);
}

fn symbolic_links_are_followed_and_read(stage: &Stage) {
    let (a, b) = (&stage.a, &stage.b);
    a.put("f", b"target").unwrap();
    a.names("symlink", "f", "l").unwrap();
    assert_eq!(b.readlink("l").unwrap(), "f");
    assert_eq!(b.get("l").unwrap(), b"target");
    assert_eq!(b.lstat("l").unwrap().size, 1);
    assert_eq!(b.stat("l").unwrap().size, 6);
    assert_eq!(b.open("l", flags::READ | libc::O_NOFOLLOW).unwrap_err().0, libc::ELOOP);
    b.names("symlink", "nowhere", "dangling").unwrap();
    assert_eq!(a.open("dangling", flags::READ).unwrap_err().0, libc::ENOENT);
    a.put("dangling", b"made through it").unwrap();
    assert_eq!(b.get("nowhere").unwrap(), b"made through it");
    a.names("symlink", "y", "x").unwrap();
    b.names("symlink", "x", "y").unwrap();
    assert_eq!(a.stat("x").unwrap_err().0, libc::ELOOP);
    a.unlink("l").unwrap();
    assert_eq!(b.get("f").unwrap(), b"target");
    assert_eq!(a.open("dangling", flags::NEW).unwrap_err().0, libc::EEXIST);
    assert_eq!(a.readlink("f").unwrap_err().0, libc::EINVAL);
}

//= semantics.md#S14 type=test
fn attributes_are_seen_by_the_other(stage: &Stage) {
    let (a, b) = (&stage.a, &stage.b);
    let fd = a.open("f", flags::NEW).unwrap();
    for mode in [0o600, 0o4755, 0o400, 0o1777, 0] {
        b.name_mode("chmod", "f", mode).unwrap();
        assert_eq!(a.fstat(fd).unwrap().permissions(), mode);
        assert_eq!(a.stat("f").unwrap().permissions(), mode);
    }
    a.call(&format!("fchmod {fd} {}", 0o644), &[]).unwrap();
    assert_eq!(b.stat("f").unwrap().permissions(), 0o644);
    a.call("chown f 1234 5678", &[]).unwrap();
    let stat = b.stat("f").unwrap();
    assert_eq!((stat.uid, stat.gid), (1234, 5678));
    a.write(fd, b"x").unwrap();
    let stat = b.stat("f").unwrap();
    assert_eq!((stat.uid, stat.gid, stat.permissions(), stat.size), (1234, 5678, 0o644, 1));
}

//= semantics.md#S14 type=test
fn extended_attributes_are_seen_by_the_other(stage: &Stage) {
    let (a, b) = (&stage.a, &stage.b);
    a.put("f", b"x").unwrap();
    a.setxattr("f", "user.colour", b"blue", 0).unwrap();
    assert_eq!(b.getxattr("f", "user.colour").unwrap(), b"blue");
    assert_eq!(b.setxattr("f", "user.colour", b"red", libc::XATTR_CREATE).unwrap_err().0, libc::EEXIST);
    assert_eq!(b.setxattr("f", "user.none", b"red", libc::XATTR_REPLACE).unwrap_err().0, libc::ENODATA);
    b.setxattr("f", "user.colour", b"", libc::XATTR_REPLACE).unwrap();
    assert_eq!(a.getxattr("f", "user.colour").unwrap(), b"");
    a.setxattr("f", "user.second", &[7; 1_000], 0).unwrap();
    let listed = b.call("listxattr f", &[]).unwrap().bytes;
    let names: BTreeSet<&[u8]> =
        listed.split(|byte| *byte == 0).filter(|name| name.starts_with(b"user.")).collect();
    assert_eq!(names, BTreeSet::from([&b"user.colour"[..], b"user.second"]));
    b.names("removexattr", "f", "user.colour").unwrap();
    assert_eq!(a.getxattr("f", "user.colour").unwrap_err().0, libc::ENODATA);
    let fd = a.open("f", flags::BOTH).unwrap();
    a.call(&format!("fsetxattr {fd} user.third 0"), b"3").unwrap();
    assert_eq!(b.getxattr("f", "user.third").unwrap(), b"3");
    assert_eq!(b.get("f").unwrap(), b"x");
}

//= semantics.md#S14 type=test
fn new_files_have_the_mode_that_the_mask_leaves(stage: &Stage) {
    let (a, b) = (&stage.a, &stage.b);
    for (mask, mode, left) in
        [(0o022, 0o666, 0o644), (0, 0o666, 0o666), (0o077, 0o777, 0o700), (0o777, 0o644, 0)]
    {
        a.call(&format!("umask {mask}"), &[]).unwrap();
        let fd = a.open_mode("f", flags::NEW, mode).unwrap();
        a.write(fd, b"the maker may write").unwrap();
        assert_eq!(b.stat("f").unwrap().permissions(), left);
        b.unlink("f").unwrap();
        a.close(fd).unwrap();
        a.name_mode("mkdir", "d", mode).unwrap();
        assert_eq!(b.stat("d").unwrap().permissions(), left);
        b.name("rmdir", "d").unwrap();
    }
}

//= semantics.md#S14 type=test
fn a_directory_can_give_its_group_to_what_is_made_in_it(stage: &Stage) {
    let (a, b) = (&stage.a, &stage.b);
    a.name_mode("mkdir", "d", 0o755).unwrap();
    a.call("chown d 0 4321", &[]).unwrap();
    a.name_mode("chmod", "d", 0o2775).unwrap();
    b.put("d/f", b"x").unwrap();
    b.name_mode("mkdir", "d/e", 0o755).unwrap();
    assert_eq!(a.stat("d/f").unwrap().gid, 4321);
    let inner = a.stat("d/e").unwrap();
    assert_eq!((inner.gid, inner.permissions()), (4321, 0o2755));
}

/// Becomes an ordinary user for file permissions.
fn drop_rights(agent: &Agent, user: u32) {
    agent.call(&format!("setegid {user}"), &[]).unwrap();
    agent.call(&format!("seteuid {user}"), &[]).unwrap();
}

//= semantics.md#S14 type=test
fn others_are_kept_out_by_permissions(stage: &Stage) {
    let (a, user) = (&stage.a, stage.another_b());
    a.put("private", b"secret").unwrap();
    a.name_mode("chmod", "private", 0o600).unwrap();
    a.put("shown", b"public").unwrap();
    a.name_mode("chmod", "shown", 0o644).unwrap();
    a.name_mode("mkdir", "own", 0o755).unwrap();
    a.call("chown own 4711 4711", &[]).unwrap();
    drop_rights(&user, 4711);
    assert_eq!(user.open("private", flags::READ).unwrap_err().0, libc::EACCES);
    assert_eq!(user.open("shown", flags::WRITE).unwrap_err().0, libc::EACCES);
    assert_eq!(user.truncate("shown", 0).unwrap_err().0, libc::EACCES);
    assert_eq!(user.get("shown").unwrap(), b"public");
    assert_eq!(user.name_mode("chmod", "shown", 0o666).unwrap_err().0, libc::EPERM);
    user.put("own/f", b"mine").unwrap();
    let stat = a.stat("own/f").unwrap();
    assert_eq!((stat.uid, stat.gid, stat.size), (4711, 4711, 4));
    let fd = user.open_mode("own/readonly", flags::NEW, 0o444).unwrap();
    user.write(fd, b"the maker may write").unwrap();
    assert_eq!(user.open("own/readonly", flags::WRITE).unwrap_err().0, libc::EACCES);
    assert_eq!(a.get("own/readonly").unwrap(), b"the maker may write");
    user.name_mode("chmod", "own/f", 0o600).unwrap();
    assert_eq!(user.call("chown own/f 0 0", &[]).unwrap_err().0, libc::EPERM);
}

//= semantics.md#S14 type=test
fn a_file_without_permissions_serves_who_has_it_open(stage: &Stage) {
    let (a, user) = (&stage.a, stage.another_b());
    a.name_mode("chmod", ".", 0o777).unwrap();
    drop_rights(&user, 4711);
    let fd = user.open("f", flags::NEW).unwrap();
    user.write(fd, b"before").unwrap();
    a.name_mode("chmod", "f", 0).unwrap();
    user.write(fd, b" and after").unwrap();
    assert_eq!(user.pread(fd, 20, 0).unwrap(), b"before and after");
    user.fsync(fd).unwrap();
    assert_eq!(user.open("f", flags::READ).unwrap_err().0, libc::EACCES);
    user.ftruncate(fd, 6).unwrap();
    user.close(fd).unwrap();
    assert_eq!(a.get("f").unwrap(), b"before");
}

fn special_files_are_what_they_are(stage: &Stage) {
    let (a, b) = (&stage.a, &stage.b);
    a.name_mode("mkfifo", "pipe", 0o600).unwrap();
    assert_eq!(b.stat("pipe").unwrap().mode & libc::S_IFMT, libc::S_IFIFO);
    // A name is one pipe for all who come through one door; the kernel keeps the pipes of two mounts apart.
    let c = stage.another_b();
    let reading = b.begin(&format!("open pipe {} 0", flags::READ), &[]);
    let out = c.open("pipe", flags::WRITE).unwrap();
    let reading = reading.wait().unwrap().value;
    c.write(out, b"through the pipe").unwrap();
    assert_eq!(b.read(reading, 100).unwrap(), b"through the pipe");
    a.unlink("pipe").unwrap();
    a.name_mode("mknod", "regular", libc::S_IFREG | 0o600).unwrap();
    b.put("regular", b"x").unwrap();
    assert_eq!(a.stat("regular").unwrap().size, 1);
}

fn the_file_system_has_a_size(stage: &Stage) {
    for agent in [&stage.a, &stage.b] {
        let found = String::from_utf8(agent.call("statfs .", &[]).unwrap().bytes).unwrap();
        let numbers: Vec<u64> = found.split(' ').map(|word| word.parse().unwrap()).collect();
        assert!(numbers[0] >= 512 && numbers[1] > 0 && numbers[2] == 255, "{found}");
    }
}

fn the_same_inode_is_seen_from_everywhere(stage: &Stage) {
    let (a, b) = (&stage.a, &stage.b);
    let fd = a.open("f", flags::NEW).unwrap();
    a.name_mode("mkdir", "d", 0o755).unwrap();
    let inode = a.fstat(fd).unwrap().ino;
    assert_eq!((a.stat("f").unwrap().ino, b.stat("f").unwrap().ino), (inode, inode));
    b.rename("f", "d/g").unwrap();
    assert_eq!((a.stat("d/g").unwrap().ino, a.fstat(fd).unwrap().ino), (inode, inode));
    assert_eq!(a.stat("d").unwrap().ino, b.stat("d").unwrap().ino);
}

/// What one of many does to few names.
fn racer(agent: &Agent, seed: u64, mounts: bool) {
    let mut random = ccpfs_semantics::Random::new(seed);
    let mut allowed = vec![
        libc::ENOENT,
        libc::EEXIST,
        libc::ENOTDIR,
        libc::EISDIR,
        libc::ENOTEMPTY,
        libc::EINVAL,
        libc::EPERM,
    ];
    if mounts {
        allowed.push(libc::ESTALE); // names that change twice between the kernel's look and its call (S25)
    }
    for _ in 0..250 {
        let one = format!("n{}", random.below(6));
        let two = format!("n{}", random.below(6));
        let inner = format!("{one}/n{}", random.below(3));
        let outcome = match random.below(10) {
            0 => agent.name_mode("mkdir", &one, 0o755),
            1 => agent.name("rmdir", &one),
            2 => agent.rename(&one, &two),
            3 => agent.names("link", &one, &two),
            4 => agent.unlink(&one),
            5 => agent.put(&one, two.as_bytes()),
            6 => agent.put(&inner, one.as_bytes()),
            7 => agent.rename(&inner, &two),
            8 => agent.stat(&one).map(|_| ()),
            _ => agent.get(&one).map(|_| ()),
        };
        if let Err(error) = outcome {
            assert!(allowed.contains(&error.0), "{one} {two}: {error:?}");
        }
    }
}

fn directory_operations_of_many_end_in_one_truth(stage: &Stage) {
    let (c, d) = crew(stage);
    thread::scope(|scope| {
        let mounts = [stage.first_mounts(), stage.second_mounts()];
        for ((seed, agent), mounts) in (1..).zip([&stage.a, &stage.b, &c, &d]).zip(mounts.into_iter().cycle())
        {
            scope.spawn(move || racer(agent, seed, mounts));
        }
    });
    let names = stage.a.readdir(".").unwrap();
    assert_eq!(names, stage.b.readdir(".").unwrap());
    for name in names {
        let (first, second) = (stage.a.stat(&name).unwrap(), stage.b.stat(&name).unwrap());
        let same = |s: ccpfs_semantics::Stat| (s.ino, s.mode, s.nlink, s.size);
        assert_eq!(same(first), same(second), "{name}");
        if first.mode & libc::S_IFMT == libc::S_IFREG {
            assert_eq!(stage.a.get(&name).unwrap(), c.get(&name).unwrap());
        }
    }
}
