//! Files that lose their names while somebody has them open, in this and in other processes.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod names_world;

use ccpfs_client::{Access, Client, File, OpenOptions, StubState};
use ccpfs_types::Layout;
use names_world::{RW, World, as_user, create, from_parent, here, name, open, read, tell_parent};
use std::os::fd::AsFd;
use std::os::unix::fs::{PermissionsExt, symlink};

/// The stub of a file, read without ccPFS.
fn state(client: &Client, world: &World, path: &str) -> StubState {
    client.stub(&world.path(path)).unwrap().state
}

//= semantics.md#S15 type=test
#[test]
fn an_unlinked_file_lives_until_its_last_handle_in_any_client_is_closed() {
    let world = World::start();
    let (one, two) = (world.client(), world.client());
    let first = create(&one, &world.path("f"));
    first.write_at(b"still here", 0).unwrap();
    let second = open(&two, &world.path("f"));
    two.unlink(&world.path("f")).unwrap();
    assert_eq!(one.orphans().unwrap().len(), 1, "somebody may be killed");
    assert_eq!(read(&first), b"still here");
    first.close().unwrap();
    assert_eq!(read(&second), b"still here");
    second.write_at(b"written", 6).unwrap();
    second.sync().unwrap();
    assert_eq!(read(&second), b"still written");
    assert_eq!(second.stat().unwrap().st_size, 13);
    assert!(!one.remove_orphan(one.orphans().unwrap()[0]).unwrap(), "it is open");
    second.close().unwrap();
    assert_eq!((world.objects(), one.orphans().unwrap()), (0, Vec::new()));
}

#[test]
fn the_last_client_to_let_go_removes_the_data_whoever_took_the_name() {
    let world = World::start();
    let clients: Vec<Client> = (0..3).map(|_| world.client()).collect();
    for round in 0..20 {
        let path = world.path("f");
        let files: Vec<File> = clients.iter().map(|client| create(client, &path)).collect();
        files[round % 3].write_at(b"data", 0).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| clients[(round + 1) % 3].unlink(&path).unwrap());
            for file in files {
                scope.spawn(|| file.close().unwrap());
            }
        });
        assert_eq!((world.objects(), clients[0].orphans().unwrap()), (0, Vec::new()), "round {round}");
    }
}

#[test]
fn child_reads_an_unlinked_file() {
    let Some(directory) = from_parent() else { return };
    let client = names_world::client_in(&directory);
    let file = open(&client, &directory.join("ns/f"));
    tell_parent("open");
    assert_eq!(read(&file), b"data");
    file.write_at(b"more", 4).unwrap();
    file.close().unwrap();
}

#[test]
fn a_file_that_another_process_has_open_outlives_its_name() {
    let world = World::start();
    let client = world.client();
    let file = create(&client, &world.path("f"));
    file.write_at(b"data", 0).unwrap();
    let mut child = world.process("child_reads_an_unlinked_file");
    child.expect("open");
    client.unlink(&world.path("f")).unwrap();
    file.close().unwrap();
    assert!(world.objects() > 0);
    child.go_on();
    child.join();
    assert_eq!((world.objects(), client.orphans().unwrap()), (0, Vec::new()));
}

//= semantics.md#S15 type=test
#[test]
fn a_killed_process_leaves_a_note_about_the_file_that_only_it_had_open() {
    let world = World::start();
    let client = world.client();
    create(&client, &world.path("f")).write_at(b"data", 0).unwrap();
    let mut child = world.process("child_reads_an_unlinked_file");
    child.expect("open");
    client.unlink(&world.path("f")).unwrap();
    let orphans = client.orphans().unwrap();
    assert!(!client.remove_orphan(orphans[0]).unwrap(), "it is open");
    child.child.kill().unwrap();
    child.child.wait().unwrap();
    assert!(world.objects() > 0);
    assert!(client.remove_orphan(orphans[0]).unwrap());
    assert_eq!((world.objects(), client.orphans().unwrap()), (0, Vec::new()));
}

#[test]
fn a_forked_process_keeps_a_file_that_its_parent_closes_at_once() {
    let world = World::start();
    let client = world.client();
    let file = create(&client, &world.path("f"));
    file.write_at(b"data", 0).unwrap();
    let mut pipe = [0; 2];
    // SAFETY: two numbers of ours.
    assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
    client.before_fork();
    // SAFETY: the child makes nothing but system calls.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: descriptors and a buffer of its own.
        unsafe {
            libc::close(pipe[1]);
            libc::read(pipe[0], [0_u8; 1].as_mut_ptr().cast(), 1);
            libc::_exit(0);
        }
    }
    client.after_fork_in_parent();
    client.unlink(&world.path("f")).unwrap();
    file.close().unwrap();
    let orphan = client.orphans().unwrap()[0];
    assert!(!client.remove_orphan(orphan).unwrap(), "the child has it open");
    // SAFETY: a descriptor of ours, and a process of ours.
    unsafe {
        libc::close(pipe[1]);
        libc::waitpid(child, std::ptr::null_mut(), 0);
        libc::close(pipe[0]);
    }
    assert!(client.remove_orphan(orphan).unwrap());
    assert_eq!(world.objects(), 0);
}

#[test]
fn a_file_with_two_names_loses_its_data_with_the_second() {
    let world = World::start();
    let (one, two) = (world.client(), world.client());
    let file = create(&one, &world.path("a"));
    file.write_at(b"data", 0).unwrap();
    file.close().unwrap();
    std::fs::hard_link(world.path("a"), world.path("b")).unwrap();
    one.unlink(&world.path("a")).unwrap();
    assert_eq!(read(&open(&two, &world.path("b"))), b"data");
    two.unlink(&world.path("b")).unwrap();
    assert_eq!((world.objects(), one.orphans().unwrap()), (0, Vec::new()));
}

//= semantics.md#S16 type=test
#[test]
fn a_file_that_is_open_outlives_the_one_that_is_renamed_over_it() {
    let world = World::start();
    let (one, two) = (world.client(), world.client());
    let old = create(&one, &world.path("f"));
    old.write_at(b"old", 0).unwrap();
    let new = create(&two, &world.path("g"));
    new.write_at(b"new!", 0).unwrap();
    two.rename(&world.path("g"), &world.path("f")).unwrap();
    assert_eq!(read(&old), b"old");
    assert_eq!(old.stat().unwrap().st_nlink, 0);
    assert_eq!(read(&open(&one, &world.path("f"))), b"new!");
    drop(old);
    new.close().unwrap();
    two.unlink(&world.path("f")).unwrap();
    assert_eq!((world.objects(), one.orphans().unwrap()), (0, Vec::new()));
}

#[test]
fn renaming_with_flags_replaces_nothing() {
    let world = World::start();
    let client = world.client();
    let (a, b) = (world.path("a"), world.path("b"));
    for (path, text) in [(&a, b"aa"), (&b, b"bb")] {
        let file = create(&client, path);
        file.write_at(text, 0).unwrap();
        file.close().unwrap();
    }
    let refused = client.rename_at(here(), &name(&a), here(), &name(&b), libc::RENAME_NOREPLACE);
    assert_eq!(refused.unwrap_err().to_errno(), libc::EEXIST);
    client.rename_at(here(), &name(&a), here(), &name(&b), libc::RENAME_EXCHANGE).unwrap();
    assert_eq!((read(&open(&client, &a)), read(&open(&client, &b))), (b"bb".to_vec(), b"aa".to_vec()));
    assert_eq!(client.orphans().unwrap(), Vec::new());
}

#[test]
fn a_file_without_a_name_goes_with_its_handle_or_gets_a_name() {
    let world = World::start();
    let client = world.client();
    let directory = std::fs::File::open(world.path("")).unwrap();
    let options = OpenOptions { create: true, ..RW };
    let file = client.temporary_at(directory.as_fd(), &options).unwrap();
    file.write_at(b"data", 0).unwrap();
    assert_eq!(file.stat().unwrap().st_nlink, 0);
    file.close().unwrap();
    assert_eq!((world.objects(), client.orphans().unwrap()), (0, Vec::new()));
    let file = client.temporary_at(directory.as_fd(), &options).unwrap();
    file.write_at(b"named", 0).unwrap();
    client.link_temporary(&file, directory.as_fd(), c"named").unwrap();
    file.close().unwrap();
    assert_eq!(read(&open(&world.client(), &world.path("named"))), b"named");
    assert_eq!(client.orphans().unwrap(), Vec::new());
    let exclusive = OpenOptions { exclusive: true, ..options };
    let file = client.temporary_at(directory.as_fd(), &exclusive).unwrap();
    let refused = client.link_temporary(&file, directory.as_fd(), c"never");
    assert_eq!(refused.unwrap_err().to_errno(), libc::ENOENT);
}

#[test]
fn names_are_relative_to_directories_and_links_are_followed_as_open_does() {
    let world = World::start();
    let client = world.client();
    std::fs::create_dir(world.path("d")).unwrap();
    let directory = std::fs::File::open(world.path("d")).unwrap();
    let make = OpenOptions { create: true, ..RW };
    let file = client.open_at(directory.as_fd(), c"f", &make).unwrap();
    file.write_at(b"data", 0).unwrap();
    drop(file);
    assert_eq!(client.stat(&world.path("d/f"), true).unwrap().st_size, 4);
    symlink("f", world.path("d/link")).unwrap();
    symlink("new", world.path("d/dangling")).unwrap();
    assert_eq!(read(&client.open_at(directory.as_fd(), c"link", &RW).unwrap()), b"data");
    client.open_at(directory.as_fd(), c"dangling", &make).unwrap();
    assert!(world.path("d/new").is_file());
    let errno = |options: OpenOptions, name| {
        client.open_at(directory.as_fd(), name, &options).map(drop).unwrap_err().to_errno()
    };
    assert_eq!(errno(OpenOptions { no_follow: true, ..RW }, c"link"), libc::ELOOP);
    assert_eq!(errno(OpenOptions { exclusive: true, ..make }, c"link"), libc::EEXIST);
    assert_eq!(errno(RW, c"nothing"), libc::ENOENT);
    assert_eq!(errno(make, c"none/f"), libc::ENOENT);
    assert_eq!(errno(make, c"."), libc::EISDIR);
    let owned = OpenOptions { owner: Some((12, 34)), mode: 0o4751, ..make };
    let found = client.open_at(directory.as_fd(), c"owned", &owned).map(|file| file.stat().unwrap());
    // SAFETY: no arguments.
    if unsafe { libc::geteuid() } == 0 {
        let found = found.unwrap();
        assert_eq!((found.st_uid, found.st_gid, found.st_mode & 0o7777), (12, 34, 0o4751));
    }
}

#[test]
fn a_directory_with_nothing_but_a_layout_is_removed() {
    let world = World::start();
    let client = world.client();
    std::fs::create_dir(world.path("d")).unwrap();
    client.set_directory_layout(&world.path("d"), Layout::new(3, 1 << 20).unwrap()).unwrap();
    create(&client, &world.path("d/f"));
    let rmdir = || client.rmdir_at(here(), &name(&world.path("d")));
    assert_eq!(rmdir().unwrap_err().to_errno(), libc::ENOTEMPTY);
    assert_eq!(client.layout(&world.path("d")).unwrap(), Layout::new(3, 1 << 20).unwrap());
    client.unlink(&world.path("d/f")).unwrap();
    rmdir().unwrap();
    assert!(!world.path("d").exists());
    assert_eq!(rmdir().unwrap_err().to_errno(), libc::ENOENT);
}

#[test]
fn directories_that_are_removed_at_once_beside_each_other_keep_their_own_layouts() {
    let world = World::start();
    let own = |number: u32| Layout::new(number + 2, 1 << 20).unwrap();
    let rounds = |number: u32| {
        let client = world.client();
        let (path, file) = (world.path(&format!("d{number}")), world.path(&format!("d{number}/f")));
        for round in 0..60 {
            std::fs::create_dir(&path).unwrap();
            client.set_directory_layout(&path, own(number)).unwrap();
            let removed = std::thread::scope(|scope| {
                let somebody = scope.spawn(|| std::fs::write(&file, "in the way"));
                let another = scope.spawn(|| client.rmdir_at(here(), &name(&path)));
                let removed = client.rmdir_at(here(), &name(&path));
                let _ = somebody.join().unwrap();
                removed.or(another.join().unwrap())
            });
            if removed.is_err() {
                assert_eq!(client.layout(&path).unwrap(), own(number), "round {round}");
                std::fs::remove_file(&file).unwrap();
                client.rmdir_at(here(), &name(&path)).unwrap();
            }
            assert!(!path.exists());
        }
    };
    std::thread::scope(|scope| {
        for number in 0..4 {
            scope.spawn(move || rounds(number));
        }
    });
    let left: Vec<_> =
        std::fs::read_dir(world.path("")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, [".ccpfs"], "nothing is left aside");
}

#[test]
fn what_a_killed_process_has_left_of_layouts_keeps_no_directory() {
    let world = World::start();
    let client = world.client();
    std::fs::create_dir(world.path("d")).unwrap();
    client.set_directory_layout(&world.path("d"), Layout::new(3, 1 << 20).unwrap()).unwrap();
    std::fs::write(world.path("d/.ccpfs-stripe-aside-0123456789abcdef"), "4 65536\n").unwrap();
    // What is called nearly so is somebody's.
    std::fs::write(world.path("d/.ccpfs-stripe-notes"), "keep").unwrap();
    let refused = client.rmdir_at(here(), &name(&world.path("d"))).unwrap_err();
    assert_eq!(refused.to_errno(), libc::ENOTEMPTY);
    assert_eq!(std::fs::read(world.path("d/.ccpfs-stripe-notes")).unwrap(), b"keep");
    std::fs::remove_file(world.path("d/.ccpfs-stripe-notes")).unwrap();
    client.rmdir_at(here(), &name(&world.path("d"))).unwrap();
    assert!(!world.path("d").exists());
}

#[test]
fn what_exists_is_said_before_what_keeps_from_making_it() {
    let world = World::start();
    let client = world.client();
    std::fs::create_dir(world.path("d")).unwrap();
    create(&client, &world.path("d/f")).close().unwrap();
    std::fs::set_permissions(world.path("d"), PermissionsExt::from_mode(0o555)).unwrap();
    let exclusive = OpenOptions { create: true, exclusive: true, ..RW };
    as_user(12_345, || {
        let make = |path| client.open(&world.path(path), &exclusive).err().map(|error| error.to_errno());
        assert_eq!(make("d/f"), Some(libc::EEXIST));
        assert_eq!(make("d/g"), Some(libc::EACCES));
        let made = client.create_at(here(), &name(&world.path("d/f")), &exclusive);
        assert_eq!(made.unwrap_err().to_errno(), libc::EEXIST);
    });
}

//= semantics.md#S15 type=test
#[test]
fn data_of_a_file_go_although_somebody_comes_too_late_to_open_it() {
    let world = World::start();
    let (one, path) = (world.client(), world.path("f"));
    let rounds = std::sync::atomic::AtomicU32::new(0);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let client = world.client();
                while rounds.load(std::sync::atomic::Ordering::SeqCst) < 150 {
                    if let Ok(file) =
                        client.open(&path, &OpenOptions { read: true, ..OpenOptions::default() })
                    {
                        file.close().unwrap();
                    }
                }
            });
        }
        for _ in 0..150 {
            let made = one.open(&path, &OpenOptions { create: true, ..RW });
            let removed = made.and_then(|file| {
                file.write_at(b"data", 0)?;
                file.close()?;
                one.unlink(&path)
            });
            rounds.fetch_add(if removed.is_ok() { 1 } else { 1000 }, std::sync::atomic::Ordering::SeqCst);
            removed.unwrap();
        }
    });
    assert_eq!(one.orphans().unwrap(), []);
    assert_eq!(world.objects(), 0, "data without a name are left");
}

#[test]
fn a_stub_that_is_open_for_its_name_only_is_attached() {
    let world = World::start();
    let (one, two) = (world.client(), world.client());
    let file = create(&one, &world.path("f"));
    file.write_at(b"data", 0).unwrap();
    let path = name(&world.path("f"));
    // SAFETY: a valid path; the descriptor is owned by nobody else.
    let named = unsafe {
        let fd = libc::open(path.as_ptr(), libc::O_PATH | libc::O_CLOEXEC);
        <std::fs::File as std::os::fd::FromRawFd>::from_raw_fd(fd)
    };
    for client in [&one, &two] {
        let mut found = client.stat_fd(named.as_fd()).unwrap();
        assert_eq!(found.st_size, 4);
        found.st_size = 64;
        assert!(client.stat_stub(named.as_fd(), &mut found).unwrap());
        assert_eq!(found.st_size, 4);
    }
    let access = Access { read: true, write: true, append: false };
    let attached = two.attach(named.as_fd(), access).unwrap();
    assert_eq!(read(&attached), b"data");
    one.unlink(&world.path("f")).unwrap();
    drop(file);
    assert_eq!(read(&two.attach(named.as_fd(), access).unwrap()), b"data", "it has no name, and is open");
}

#[test]
fn without_a_registry_files_go_with_their_names() {
    let world = World::start();
    std::fs::write(world.path(".ccpfs"), "in the way").unwrap();
    let (one, two) = (world.client(), world.client());
    let file = create(&one, &world.path("f"));
    file.write_at(b"data", 0).unwrap();
    assert_eq!(state(&one, &world, "f"), StubState::Unwatched);
    file.close().unwrap();
    assert_eq!(state(&one, &world, "f"), StubState::Unwatched, "never sealed");
    let file = open(&one, &world.path("f"));
    let other = open(&two, &world.path("f"));
    one.unlink(&world.path("f")).unwrap();
    assert_eq!(read(&file), b"data", "until the last close of the process that removes it");
    drop(file);
    assert_eq!(world.objects(), 0);
    assert_eq!(other.write_at(b"x", 0).unwrap_err().to_errno(), libc::ESTALE);
    drop(other);
    // Whoever sees the registry later does not seal what those write who did not.
    let file = create(&one, &world.path("g"));
    std::fs::remove_file(world.path(".ccpfs")).unwrap();
    let late = world.client();
    open(&late, &world.path("g")).close().unwrap();
    assert_eq!(state(&late, &world, "g"), StubState::Unwatched);
    file.write_at(b"data", 0).unwrap();
    assert_eq!(late.stat(&world.path("g"), true).unwrap().st_size, 4);
}

#[test]
fn a_layout_that_one_client_sets_counts_for_clients_that_are_there_already_and_below_all_directories() {
    let world = World::without_server();
    let (one, two) = (world.client(), world.client());
    let default = two.layout(&world.path("")).unwrap();
    std::fs::create_dir_all(world.path("d/e/f")).unwrap();
    let made = |client: &Client, name: &str| {
        create(client, &world.path(name)).close().unwrap();
        client.layout(&world.path(name)).unwrap()
    };
    assert_eq!(made(&two, "d/e/f/before"), default);
    one.set_directory_layout(&world.path("d"), Layout::new(3, 1 << 20).unwrap()).unwrap();
    for client in [&one, &two, &world.client()] {
        std::fs::remove_file(world.path("d/e/f/after")).unwrap_or_default();
        assert_eq!(made(client, "d/e/f/after"), Layout::new(3, 1 << 20).unwrap());
        std::fs::remove_file(world.path("beside")).unwrap_or_default();
        assert_eq!(made(client, "beside"), default);
    }
}

#[test]
fn layouts_of_a_namespace_that_was_there_before_its_registry_count() {
    let world = World::without_server();
    std::fs::create_dir(world.path("d")).unwrap();
    std::fs::write(world.path("d/.ccpfs-stripe"), "4 65536\n").unwrap();
    let client = world.client();
    assert!(!world.path(".ccpfs/layouts").exists());
    create(&client, &world.path("d/f")).close().unwrap();
    assert_eq!(client.layout(&world.path("d/f")).unwrap(), Layout::new(4, 65_536).unwrap());
}
