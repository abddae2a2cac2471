//! A plan: a small world, what its applications call, and what goes wrong. Written down before the run, so that parts can be left out.

use super::{Next, Thread, Work, Workload};
use crate::config::Config;
use crate::history::{Call, Comb};
use ccpfs_types::Extent;
use std::fmt::Write as _;

/// A call of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedCall {
    /// Who calls.
    pub thread: Thread,
    /// How long it thinks before, nanoseconds.
    pub after_ns: u64,
    /// What it calls.
    pub call: Call,
}

/// A fault of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedFault {
    /// When, nanoseconds.
    pub at_ns: u64,
    /// What.
    pub kind: FaultPlan,
}

macro_rules! faults {
    ($( $(#[$doc:meta])* $name:ident = $text:literal { $( $(#[$field_doc:meta])* $field:ident ),* $(,)? } )*) => {
        /// What goes wrong, or puts a strain on somebody.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum FaultPlan {
            $( $(#[$doc])* $name { $( $(#[$field_doc])* $field: u64 ),* } ),*
        }

        impl FaultPlan {
            fn to_text(self) -> String {
                match self {
                    $( FaultPlan::$name { $($field),* } => {
                        let mut text = String::from($text);
                        $( let _ = write!(text, " {}", $field); )*
                        text
                    } )*
                }
            }

            fn read(name: &str, words: &mut dyn Iterator<Item = u64>) -> Option<FaultPlan> {
                match name {
                    $( $text => Some(FaultPlan::$name { $( $field: words.next()? ),* }), )*
                    _ => None,
                }
            }
        }
    };
}

faults! {
    /// One connection between a client and a shard is lost.
    Cut = "cut" {
        /// The client node.
        client,
        /// The shard.
        target,
        /// 0 control, 1 callback, 2 bulk.
        channel,
    }
    /// Nothing passes between a client and a server for some time.
    Partition = "partition" {
        /// The client node.
        client,
        /// The server node.
        server,
        /// How long, nanoseconds.
        for_ns,
    }
    /// A client process is stopped, and goes on later.
    FreezeClient = "freeze-client" {
        /// The client node.
        client,
        /// How long, nanoseconds.
        for_ns,
    }
    /// A server process is stopped, and goes on later.
    FreezeServer = "freeze-server" {
        /// The server node.
        server,
        /// How long, nanoseconds.
        for_ns,
    }
    /// A client process is killed, and another is started in its place.
    CrashClient = "crash-client" {
        /// The client node.
        client,
        /// How long after, nanoseconds.
        for_ns,
    }
    /// A server process is killed and started again; its file system keeps what it was given.
    KillServer = "kill-server" {
        /// The server node.
        server,
        /// How long after, nanoseconds.
        for_ns,
    }
    /// A server loses power and is started again: only what was synced is left for sure.
    LosePower = "lose-power" {
        /// The server node.
        server,
        /// How long after, nanoseconds.
        for_ns,
    }
    /// Devices fail now and then.
    DeviceErrors = "device-errors" {
        /// Of a thousand tasks, so many.
        per_mille,
        /// For how long, nanoseconds.
        for_ns,
    }
    /// A client ends its sessions in order, in the middle of everything; what is dirty is lost.
    Leave = "leave" {
        /// The client node.
        client,
    }
    /// A client gives back its unused locks.
    Shrink = "shrink" {
        /// The client node.
        client,
    }
    /// A client forgets its clean bytes.
    Reclaim = "reclaim" {
        /// The client node.
        client,
    }
}

impl FaultPlan {
    /// The same fault of a client that there is.
    #[must_use]
    pub(crate) fn within(mut self, clients: u64) -> FaultPlan {
        match &mut self {
            FaultPlan::Cut { client, .. }
            | FaultPlan::Partition { client, .. }
            | FaultPlan::FreezeClient { client, .. }
            | FaultPlan::CrashClient { client, .. }
            | FaultPlan::Leave { client }
            | FaultPlan::Shrink { client }
            | FaultPlan::Reclaim { client } => *client %= clients,
            FaultPlan::FreezeServer { .. }
            | FaultPlan::KillServer { .. }
            | FaultPlan::LosePower { .. }
            | FaultPlan::DeviceErrors { .. } => {}
        }
        self
    }
}

/// A world, its calls and its faults.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Plan {
    /// What luck in the run depends on: delays, coins.
    pub seed: u64,
    /// The cluster.
    pub config: Config,
    /// Calls, of each thread in this order.
    pub calls: Vec<PlannedCall>,
    /// Faults, in any order.
    pub faults: Vec<PlannedFault>,
}

impl Plan {
    /// The plan as a small text, for [`Plan::read`].
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = format!("seed {}\n{}", self.seed, self.config.to_text());
        for planned in &self.calls {
            let Thread { client, thread } = planned.thread;
            let _ =
                writeln!(text, "call {client} {thread} {} {}", planned.after_ns, call_text(&planned.call));
        }
        for fault in &self.faults {
            let _ = writeln!(text, "fault {} {}", fault.at_ns, fault.kind.to_text());
        }
        text
    }

    /// Reads a plan from its text. Lines that begin with `#` say nothing.
    ///
    /// # Errors
    /// The line that means nothing.
    pub fn read(text: &str) -> Result<Plan, String> {
        let mut plan = Plan::default();
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            plan.read_line(line).ok_or_else(|| format!("this line of the plan means nothing: {line}"))?;
        }
        Ok(plan)
    }

    fn read_line(&mut self, line: &str) -> Option<()> {
        let mut words = line.split_whitespace();
        match words.next()? {
            "seed" => self.seed = words.next()?.parse().ok()?,
            "call" => {
                let mut number = || words.next()?.parse::<u64>().ok();
                let (client, thread, after_ns) = (number()?, number()?, number()?);
                let thread = Thread { client: client.try_into().ok()?, thread: thread.try_into().ok()? };
                let call = read_call(&mut words)?;
                self.calls.push(PlannedCall { thread, after_ns, call });
            }
            "fault" => {
                let at_ns = words.next()?.parse().ok()?;
                let name = words.next()?;
                let mut numbers = words.map_while(|word| word.parse().ok());
                self.faults.push(PlannedFault { at_ns, kind: FaultPlan::read(name, &mut numbers)? });
            }
            _ => return self.config.read_line(line),
        }
        Some(())
    }
}

fn call_text(call: &Call) -> String {
    match call {
        Call::Write { file, extent, comb } => {
            format!("write {file} {} {}{}", extent.start(), extent.end(), comb_text(*comb))
        }
        Call::Read { file, extent, comb } => {
            format!("read {file} {} {}{}", extent.start(), extent.end(), comb_text(*comb))
        }
        Call::Append { file, length } => format!("append {file} {length}"),
        Call::Truncate { file, length } => format!("truncate {file} {length}"),
        Call::Size { file } => format!("size {file}"),
        Call::Fsync { file } => format!("fsync {file}"),
    }
}

fn comb_text(comb: Comb) -> String {
    if comb == Comb::NONE { String::new() } else { format!(" {} {}", comb.length, comb.stride) }
}

fn read_call<'a>(words: &mut impl Iterator<Item = &'a str>) -> Option<Call> {
    let name = words.next()?;
    let file = words.next()?.parse().ok()?;
    let mut number = || words.next()?.parse::<u64>().ok();
    Some(match name {
        "write" | "read" => {
            let extent = Extent::new(number()?, number()?)?;
            let comb =
                number().map_or(Some(Comb::NONE), |length| Some(Comb { length, stride: number()? }))?;
            match name {
                "write" => Call::Write { file, extent, comb },
                _ => Call::Read { file, extent, comb },
            }
        }
        "append" => Call::Append { file, length: number()? },
        "truncate" => Call::Truncate { file, length: number()? },
        "size" => Call::Size { file },
        "fsync" => Call::Fsync { file },
        _ => return None,
    })
}

/// The applications of a plan.
#[derive(Clone, Debug)]
pub struct Planned {
    /// What each thread still has to call, the last first.
    left: Vec<(Thread, Vec<PlannedCall>)>,
}

impl Planned {
    /// The calls of a plan, by thread.
    #[must_use]
    pub fn new(plan: &Plan) -> Planned {
        let mut left: Vec<(Thread, Vec<PlannedCall>)> = Vec::new();
        for planned in plan.calls.iter().rev() {
            match left.iter_mut().find(|(thread, _)| *thread == planned.thread) {
                Some((_, calls)) => calls.push(planned.clone()),
                None => left.push((planned.thread, vec![planned.clone()])),
            }
        }
        Planned { left }
    }
}

impl Workload for Planned {
    fn next(&mut self, thread: Thread, _: u64) -> Next {
        let calls = self.left.iter_mut().find(|(of, _)| *of == thread);
        match calls.and_then(|(_, calls)| calls.pop()) {
            Some(planned) => Next::Call { after_ns: planned.after_ns, work: Work::Call(planned.call) },
            None => Next::Done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::FileConfig;

    #[test]
    fn a_plan_is_read_back_from_its_text() {
        let mut plan = Plan { seed: 9, ..Plan::default() };
        plan.config.files.push(FileConfig { stripes: 2, stripe_bytes: 4096 });
        plan.config.net.jitter_ns = 5;
        let thread = Thread { client: 1, thread: 0 };
        let extent = Extent::new(3, 9).unwrap();
        for call in [
            Call::Write { file: 0, extent, comb: Comb::NONE },
            Call::Read { file: 0, extent, comb: Comb { length: 1, stride: 5 } },
            Call::Append { file: 0, length: 4 },
            Call::Truncate { file: 0, length: 0 },
            Call::Size { file: 0 },
            Call::Fsync { file: 0 },
        ] {
            plan.calls.push(PlannedCall { thread, after_ns: 7, call });
        }
        let kind = FaultPlan::Cut { client: 1, target: 0, channel: 2 };
        plan.faults.push(PlannedFault { at_ns: 12, kind });
        plan.faults.push(PlannedFault { at_ns: 13, kind: FaultPlan::Shrink { client: 0 } });
        let text = plan.to_text();
        assert_eq!(Plan::read(&text), Ok(plan));
        assert!(Plan::read("fault 3 flood").is_err());
    }
}
