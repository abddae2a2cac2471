//! One scenario, every door: a driver that lets small agents work on one cluster through mounts and the preload library, and
//! on a plain directory, which shows that what a scenario expects is what a local file system does.
//!
//! A [`World`] is a cluster of real processes with up to two mounts. An [`Agent`] is a process that carries out system calls
//! one by one, as the test says. A [`Stage`] is a world with two agents, each behind a [`Door`]; [`scenarios!`] runs a test on
//! the stages that it names.

mod agent;
mod calls;
mod mount;
mod power;
mod random;
mod stage;
mod world;

pub use agent::{Agent, Errno, Pending, Reply, escaped};
pub use calls::{Stat, flags};
pub use ccpfs_test_support::{built, described, finish, have, output_of, skip, tool};
pub use mount::Mount;
pub use power::Power;
pub use random::Random;
pub use stage::Stage;
pub use world::{Door, Settings, World};

/// Whether the long form of tests is wanted: the variable `CCPFS_SEMANTICS_LONG` is set and not empty.
#[must_use]
pub fn is_long() -> bool {
    std::env::var_os("CCPFS_SEMANTICS_LONG").is_some_and(|value| !value.is_empty())
}

/// Defines a module of tests for each scenario, a function that takes a [`Stage`]; one test for each pair of doors.
///
/// `every door:` all pairs. `the first maps:` those whose first door can map files shared. `both map:` those of which both can.
#[macro_export]
macro_rules! scenarios {
    (every door: $($scenario:ident),* $(,)?) => { $(
        mod $scenario {
            $crate::scenarios!(@pair on_a_plain_directory, (Plain, Plain), $scenario);
            $crate::scenarios!(@pair on_two_mounts, (Mount(0), Mount(1)), $scenario);
            $crate::scenarios!(@pair twice_on_one_mount, (Mount(0), Mount(0)), $scenario);
            $crate::scenarios!(@pair on_a_mount_and_under_the_preload_library, (Mount(0), Preload), $scenario);
            $crate::scenarios!(@pair under_the_preload_library_and_on_a_mount, (Preload, Mount(0)), $scenario);
            $crate::scenarios!(@pair under_the_preload_library, (Preload, Preload), $scenario);
        }
    )* };
    (the first maps: $($scenario:ident),* $(,)?) => { $(
        mod $scenario {
            $crate::scenarios!(@pair on_a_plain_directory, (Plain, Plain), $scenario);
            $crate::scenarios!(@pair on_two_mounts, (Mount(0), Mount(1)), $scenario);
            $crate::scenarios!(@pair twice_on_one_mount, (Mount(0), Mount(0)), $scenario);
            $crate::scenarios!(@pair on_a_mount_and_under_the_preload_library, (Mount(0), Preload), $scenario);
        }
    )* };
    (both map: $($scenario:ident),* $(,)?) => { $(
        mod $scenario {
            $crate::scenarios!(@pair on_a_plain_directory, (Plain, Plain), $scenario);
            $crate::scenarios!(@pair on_two_mounts, (Mount(0), Mount(1)), $scenario);
            $crate::scenarios!(@pair twice_on_one_mount, (Mount(0), Mount(0)), $scenario);
        }
    )* };
    (@pair $test:ident, ($($door:tt)*), $scenario:ident) => {
        #[test]
        fn $test() {
            #[allow(unused_imports, reason = "not every pair has every door")]
            use $crate::Door::{Mount, Plain, Preload};
            let name = concat!(stringify!($scenario), "::", stringify!($test));
            $crate::Stage::play(($($door)*), name, super::$scenario);
        }
    };
}
