//! One call under way: its locks, taken in stripe order and held together, then what it came for.
//!
//! A call is a list of steps, those of the product's shell (`crates/client`). A step is done, or waits for what the cached stripes
//! and the servers answer.

mod asking;
mod reading;

use crate::bytes::{Byte, Bytes};
use crate::call::Call;
use crate::client::ClientNode;
use crate::cluster::Context;
use crate::{places, text};
use ccpfs_cached_stripe::{EIO, Input};
use ccpfs_dlm::client::least_restrictive;
use ccpfs_namespace::SizeQuestion;
use ccpfs_region::{Region, Section, UNBOUNDED};
use ccpfs_types::{Extent, LockMode, OperationId, RequestId, Sn, Terms};
use ccpfs_wire::Message;
use ccpfs_writeback::BarrierId;
use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};

/// A lock in use.
#[derive(Clone, Copy, Debug)]
struct Held {
    stripe: usize,
    operation: OperationId,
    sn: Sn,
}

/// Something to be done, or to be waited for.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Ask for a lock of a stripe.
    Lock {
        stripe: usize,
        extent: Extent,
        mode: LockMode,
    },
    Locked {
        stripe: usize,
        operation: OperationId,
        at_once: bool,
    },
    /// Wait until the script lets the operation go on.
    Pause,
    /// Put the bytes into the pages of all stripes.
    Copy,
    /// Ask a stripe what is missing for a read, and its server for that.
    Look {
        stripe: usize,
    },
    Looked {
        stripe: usize,
    },
    Fetched {
        stripe: usize,
    },
    /// Fill what servers left out with zeros, up to the file's size.
    Zero,
    CopyOut,
    /// Find out the size: of each stripe own data, then what its server and other clients know.
    AskSize,
    Measure {
        stripe: usize,
    },
    Measured {
        stripe: usize,
        operation: OperationId,
    },
    Sized,
    /// Cut a stripe.
    Cut {
        stripe: usize,
    },
    Answered {
        stripe: usize,
    },
    /// Wait for all that is dirty.
    Flush,
    Flushed {
        barrier: BarrierId,
    },
    /// Have a server make durable what it has.
    Sync {
        shard: usize,
    },
    Synced {
        shard: usize,
        operation: OperationId,
    },
    /// Have a server remove its stripes.
    Destroy {
        shard: usize,
    },
}

/// What came of a step.
enum Progress {
    Wait,
    Done,
    Fails(i32),
}

/// A request without an answer.
#[derive(Clone, Copy, Debug)]
struct Request {
    id: RequestId,
    shard: usize,
    stripe: usize,
    extent: Option<Extent>,
}

/// An operation under way.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    /// `w1`.
    pub(crate) name: String,
    call: Call,
    /// What its bytes are tagged with.
    byte: Byte,
    steps: VecDeque<Step>,
    held: Vec<Held>,
    pub(crate) paused: bool,
    requests: Vec<Request>,
    answers: BTreeMap<RequestId, (Message, Option<Bytes>)>,
    /// What servers left out because their stripe ended before.
    short: Vec<(usize, Extent)>,
    /// The question for the size, while it is being asked.
    question: Option<SizeQuestion>,
    size: Option<u64>,
    result: String,
    over: bool,
}

/// Stripes and shards are few.
fn number(index: usize) -> u32 {
    u32::try_from(index).expect("a walk has few stripes")
}

impl Operation {
    pub(crate) fn new(name: String, tag: u32, call: Call, paused: bool, cx: &Context) -> Operation {
        let mut operation = Operation {
            name,
            call,
            byte: Byte::Write(tag),
            steps: VecDeque::new(),
            held: Vec::new(),
            paused,
            requests: Vec::new(),
            answers: BTreeMap::new(),
            short: Vec::new(),
            question: None,
            size: None,
            result: String::from("returns"),
            over: false,
        };
        operation.plan(cx);
        operation
    }

    fn plan(&mut self, cx: &Context) {
        let parts = self.parts(cx);
        let stripes: Vec<usize> = parts.iter().map(|(stripe, _)| *stripe).collect();
        if let Some((intent, _)) = self.call.wish() {
            let chosen = least_restrictive(intent, parts.len());
            let mode = match self.call {
                Call::Write { mode: Some(mode), .. } => mode,
                Call::Write { mode: None, .. }
                | Call::Append { .. }
                | Call::Read { .. }
                | Call::Truncate { .. }
                | Call::Fsync
                | Call::Size
                | Call::Unlink => chosen,
            };
            self.steps.extend(parts.iter().map(|(stripe, extent)| Step::Lock {
                stripe: *stripe,
                extent: *extent,
                mode,
            }));
            self.steps.push_back(Step::Pause);
        }
        match self.call {
            Call::Write { .. } => self.steps.push_back(Step::Copy),
            Call::Append { .. } => self.steps.extend([Step::AskSize, Step::Copy]),
            Call::Read { .. } => {
                let looks = stripes.iter().map(|stripe| Step::Look { stripe: *stripe });
                self.steps.extend(looks.chain([Step::CopyOut]));
            }
            Call::Truncate { size } => {
                // The stripe that ends the file first: with it the size is the new one.
                let ends = |stripe: &usize| {
                    let length = cx.layout.stripe_length(number(*stripe), size);
                    Reverse(cx.layout.file_size(number(*stripe), length))
                };
                let mut stripes = stripes;
                stripes.sort_by_key(ends);
                self.steps.extend(stripes.iter().map(|stripe| Step::Cut { stripe: *stripe }));
            }
            Call::Fsync => {
                self.steps.push_back(Step::Flush);
                self.steps.extend((0..cx.shards).map(|shard| Step::Sync { shard }));
            }
            Call::Size => self.steps.push_back(Step::AskSize),
            Call::Unlink => self.steps.extend((0..cx.shards).map(|shard| Step::Destroy { shard })),
        }
    }

    /// What it locks, by stripe.
    fn parts(&self, cx: &Context) -> Vec<(usize, Extent)> {
        let Some((_, extent)) = self.call.wish() else { return Vec::new() };
        cx.layout.stripe_hulls(extent).map(|(stripe, part)| (stripe as usize, part)).collect()
    }

    fn part(&self, stripe: usize, cx: &Context) -> Extent {
        let part = self.parts(cx).into_iter().find(|(index, _)| *index == stripe);
        part.map(|(_, part)| part).expect("steps name stripes that the operation touches")
    }

    fn held(&self, stripe: usize) -> Held {
        *self.held.iter().find(|held| held.stripe == stripe).expect("the lock was taken before")
    }

    pub(crate) const fn is_over(&self) -> bool {
        self.over
    }

    /// What it keeps other threads of its client from: bytes of the file, and whether it writes them.
    pub(crate) fn keeps(&self) -> Option<(Extent, bool)> {
        let (_, extent) = self.call.wish()?;
        Some((extent, !matches!(self.call, Call::Read { .. })))
    }

    /// A session is lost: its answers will not come.
    pub(crate) fn lose(&mut self, shard: usize, node: &mut ClientNode, cx: &mut Context) {
        if self.requests.iter().any(|request| request.shard == shard) {
            self.fail(EIO, node, cx);
        }
    }

    /// Goes on as far as possible.
    pub(crate) fn advance(&mut self, node: &mut ClientNode, cx: &mut Context) {
        while !self.over {
            let Some(step) = self.steps.pop_front() else {
                let line = format!("{} {} {}", node.name(), self.name, self.result);
                self.end_uses(node, cx);
                cx.log.say(self.call.place(), line);
                self.over = true;
                return;
            };
            match self.run(step, node, cx) {
                Progress::Wait => {
                    self.steps.push_front(step);
                    return;
                }
                Progress::Done => {}
                Progress::Fails(errno) => self.fail(errno, node, cx),
            }
        }
    }

    fn fail(&mut self, errno: i32, node: &mut ClientNode, cx: &mut Context) {
        self.end_uses(node, cx);
        if self.call == Call::Fsync {
            // Each error is reported once.
            node.inbox.error = None;
        }
        let line = format!("{} {} fails: {}", node.name(), self.name, text::errno(errno));
        cx.log.say(self.call.place(), line);
        self.over = true;
    }

    fn end_uses(&mut self, node: &mut ClientNode, cx: &mut Context) {
        for Held { stripe, operation, .. } in std::mem::take(&mut self.held) {
            node.step(stripe, Input::Finish { operation }, cx);
        }
    }

    fn run(&mut self, step: Step, node: &mut ClientNode, cx: &mut Context) -> Progress {
        match step {
            Step::Lock { stripe, extent, mode } => self.lock(stripe, extent, mode, node, cx),
            Step::Locked { stripe, operation, at_once } => self.locked(stripe, operation, at_once, node, cx),
            Step::Pause if self.paused => Progress::Wait,
            Step::Pause => Progress::Done,
            Step::Copy => self.copy(node, cx),
            Step::Look { stripe } => {
                let input = Input::Look {
                    operation: self.held(stripe).operation,
                    extent: self.part(stripe, cx),
                    ahead_bytes: 0,
                };
                node.step(stripe, input, cx);
                self.then([Step::Looked { stripe }])
            }
            Step::Looked { stripe } => self.looked(stripe, node, cx),
            Step::Fetched { stripe } => self.fetched(stripe, node, cx),
            Step::Zero => self.zero(node, cx),
            Step::CopyOut => self.copy_out(node, cx),
            Step::AskSize => self.ask_size(node, cx),
            Step::Measure { stripe } => {
                let operation = node.operation();
                node.step(stripe, Input::Measure { operation }, cx);
                self.then([Step::Measured { stripe, operation }])
            }
            Step::Measured { stripe, operation } => self.measured(stripe, operation, node, cx),
            Step::Sized => self.sized(node),
            Step::Cut { stripe } => self.cut(stripe, node, cx),
            Step::Answered { stripe } => self.answered(stripe, node, cx),
            Step::Flush => self.flush(node, cx),
            Step::Flushed { barrier } => match node.inbox.barriers.remove(&barrier) {
                Some(None) => Progress::Done,
                Some(Some(errno)) => Progress::Fails(errno),
                None => Progress::Wait,
            },
            Step::Sync { shard } => self.sync(shard, node, cx),
            Step::Synced { shard, operation } => self.synced(shard, operation, node, cx),
            Step::Destroy { shard } => self.destroy(shard, node, cx),
        }
    }

    /// Does these steps next.
    fn then<const N: usize>(&mut self, steps: [Step; N]) -> Progress {
        for step in steps.into_iter().rev() {
            self.steps.push_front(step);
        }
        Progress::Done
    }

    /// What a call desires of a stripe: all that follows, or all that follows at its stride.
    fn desired(&self, extent: Extent) -> Region {
        let each = if let Call::Write { each, .. } = self.call { each } else { 0 };
        let section = Section::new(extent.start(), extent.length(), &[(each, UNBOUNDED)]);
        section.map_or_else(|_| Region::from(Extent::to_eof(extent.start())), Region::from)
    }

    fn lock(
        &mut self,
        stripe: usize,
        extent: Extent,
        mode: LockMode,
        node: &mut ClientNode,
        cx: &mut Context,
    ) -> Progress {
        let operation = node.operation();
        let input = Input::Acquire {
            operation,
            mode,
            required: Region::from(extent),
            desired: self.desired(extent),
            request: RequestId(node.next_number()),
            terms: Terms::WAIT,
        };
        node.step(stripe, input, cx);
        let at_once = node.inbox.answers.contains_key(&operation);
        self.then([Step::Locked { stripe, operation, at_once }])
    }

    fn locked(
        &mut self,
        stripe: usize,
        operation: OperationId,
        at_once: bool,
        node: &mut ClientNode,
        cx: &mut Context,
    ) -> Progress {
        match node.inbox.answers.remove(&operation) {
            None => Progress::Wait,
            Some(Err(errno)) => Progress::Fails(errno),
            Some(Ok((lock, sn))) => {
                let which = cx.writer.stripe_words(number(stripe));
                let cached = if at_once { ", which it holds" } else { "" };
                let line =
                    format!("{} {} uses {which}{lock} {}{cached}", node.name(), self.name, text::sn(sn));
                cx.log.say(places::ACQUIRE, line);
                self.held.push(Held { stripe, operation, sn });
                Progress::Done
            }
        }
    }

    /// Copies into the pages with all locks held, then marks dirty and ends the use of each, stripe by stripe.
    fn copy(&mut self, node: &mut ClientNode, cx: &mut Context) -> Progress {
        let extent = match (self.call, self.size) {
            (Call::Write { extent, .. }, _) => extent,
            (Call::Append { length }, Some(size)) => {
                let line = format!("{} {} appends at {}", node.name(), self.name, text::size(size));
                cx.log.say(places::WRITE, line);
                Extent::with_length(size, length).expect("appends are small and not empty")
            }
            (
                Call::Append { .. }
                | Call::Read { .. }
                | Call::Truncate { .. }
                | Call::Fsync
                | Call::Size
                | Call::Unlink,
                _,
            ) => return Progress::Done,
        };
        let parts: BTreeMap<usize, Extent> =
            cx.layout.stripe_hulls(extent).map(|(stripe, part)| (stripe as usize, part)).collect();
        for (stripe, part) in &parts {
            node.stripes[*stripe].memory.insert(*part, self.byte);
        }
        let mut void = false;
        for Held { stripe, operation, sn } in std::mem::take(&mut self.held) {
            if let Some(part) = parts.get(&stripe) {
                let what = cx.writer.in_stripe(number(stripe), *part);
                let holds = node.stripes[stripe].machine.holds(operation);
                let mark = if holds {
                    format!("dirty {what} {}", text::sn(sn))
                } else {
                    String::from("finds its lock lost")
                };
                let line = format!("{} {} {mark}", node.name(), self.name);
                cx.log.say(places::CACHE, line);
                node.step(stripe, Input::Written { operation, extent: *part, now_ns: cx.wall_ns }, cx);
                void |= node.inbox.void.remove(&operation);
            }
            node.step(stripe, Input::Finish { operation }, cx);
        }
        if void { Progress::Fails(EIO) } else { Progress::Done }
    }
}
