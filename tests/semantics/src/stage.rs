//! Two agents behind two doors, on which a scenario is played.

use crate::agent::Agent;
use crate::world::{Door, Settings, World};
use ccpfs_test_support::skip;

/// A world with an agent behind each of two doors.
pub struct Stage {
    /// The first agent.
    pub a: Agent,
    /// The second agent.
    pub b: Agent,
    doors: (Door, Door),
    world: World,
}

impl Stage {
    /// Plays a scenario behind two doors. On a build that cannot mount, those with mounts are skipped, loudly.
    pub fn play(doors: (Door, Door), name: &str, scenario: impl FnOnce(&Stage)) {
        let mounts = matches!(doors.0, Door::Mount(_)) || matches!(doors.1, Door::Mount(_));
        if mounts && !World::can_mount() {
            skip(name, "this build cannot mount");
            return;
        }
        let world = if doors == (Door::Plain, Door::Plain) {
            World::plain()
        } else {
            World::start(&Settings::default())
        };
        let stage = Stage { a: world.agent(doors.0), b: world.agent(doors.1), doors, world };
        scenario(&stage);
    }

    /// Another agent behind the first door.
    #[must_use]
    pub fn another_a(&self) -> Agent {
        self.world.agent(self.doors.0)
    }

    /// Another agent behind the second door.
    #[must_use]
    pub fn another_b(&self) -> Agent {
        self.world.agent(self.doors.1)
    }

    /// Whether this is the local file system.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.doors == (Door::Plain, Door::Plain)
    }

    /// Whether both agents are behind the same mount.
    #[must_use]
    pub fn is_on_one_mount(&self) -> bool {
        self.doors.0 == self.doors.1 && self.first_mounts()
    }

    /// Whether the first agent is behind a mount.
    #[must_use]
    pub fn first_mounts(&self) -> bool {
        matches!(self.doors.0, Door::Mount(_))
    }

    /// Whether the second agent is behind a mount.
    #[must_use]
    pub fn second_mounts(&self) -> bool {
        matches!(self.doors.1, Door::Mount(_))
    }
}
