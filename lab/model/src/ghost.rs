//! What the checks remember, and the checks.
//!
//! Each operation keeps, for each stripe, the sequence number of the lock it ran under; a read keeps whose byte it saw. The order of
//! writes of a byte is that of (sequence number of the lock, order within it). Writes of a client that was lost may be lost with it,
//! as docs/semantics.md S10 and S12 say: they are *doubtful* from then on, unless an fsync covered them.

use crate::config::{BYTES, Op, Part};
use crate::rule::{Broken, Found, Rule, broken};
use crate::state::{Bytes, POISON, Stored, Tag, counted};
use crate::world::World;
use ccpfs_types::LockMode;

/// How far an operation has come, seen from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Not begun.
    Ahead,
    /// Begun.
    Running,
    /// Returned.
    Returned,
    /// Returned an error, or never will return.
    Failed,
}

/// What an operation did under one lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Use {
    /// Which part of the call.
    pub part: u8,
    /// On which stripe.
    pub stripe: u8,
    /// Number of the lock it ran under.
    pub sn: u64,
    /// First byte and end of what it wrote, cut or read.
    pub start: u8,
    /// See `start`.
    pub end: u8,
    /// Whether it uses the lock now.
    pub active: bool,
    /// Writes: its place among those of its client on this stripe, once its bytes are marked.
    pub order: Option<u8>,
    /// Reads: whose bytes it saw ([`POISON`]: none).
    pub saw: Bytes,
}

/// One operation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Past {
    /// How far it has come.
    pub phase: Phase,
    /// Its writes may be lost.
    pub doubtful: bool,
    /// Operations that had returned before it began, one bit each.
    pub before: u16,
    /// By stripe, the lengths that were true at some moment since it began, one bit each; kept for those who may ask.
    pub lengths: [u8; 2],
    /// By part.
    pub uses: Vec<Use>,
}

impl Past {
    /// What it did on a stripe.
    fn on(&self, stripe: u8) -> impl Iterator<Item = &Use> {
        self.uses.iter().filter(move |used| used.stripe == stripe)
    }

    /// What it did to a byte of a stripe.
    fn at(&self, stripe: u8, byte: usize) -> Option<&Use> {
        self.on(stripe).find(|used| used.holds(byte))
    }

    fn part(&mut self, part: u8) -> &mut Use {
        self.uses.iter_mut().find(|used| used.part == part).expect("it has its lock")
    }
}

impl Use {
    fn holds(&self, byte: usize) -> bool {
        (usize::from(self.start)..usize::from(self.end)).contains(&byte)
    }
}

/// What has happened.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ghost {
    /// By tag, less one.
    pub ops: Vec<Past>,
    /// Last write number granted, by stripe.
    pub granted: Vec<u64>,
    /// The length of each stripe when it was noted last.
    pub lengths: Vec<u64>,
}

impl Ghost {
    /// Nothing has happened.
    #[must_use]
    pub fn new(ops: usize, stripes: u8, length: u8) -> Ghost {
        assert!(ops <= 16, "a set of operations is 16 bits");
        let past =
            Past { phase: Phase::Ahead, doubtful: false, before: 0, lengths: [0; 2], uses: Vec::new() };
        Ghost {
            ops: vec![past; ops],
            granted: vec![0; usize::from(stripes)],
            lengths: vec![length.into(); usize::from(stripes)],
        }
    }

    fn past(&mut self, tag: Tag) -> &mut Past {
        &mut self.ops[usize::from(tag) - 1]
    }

    /// An operation begins.
    pub fn invoked(&mut self, tag: Tag) {
        let returned = self.ops.iter().enumerate().filter(|(_, past)| past.phase == Phase::Returned);
        let before = returned.fold(0, |set, (op, _)| set | 1 << op);
        let past = self.past(tag);
        (past.phase, past.before) = (Phase::Running, before);
    }

    /// A write lock is granted.
    pub fn sn_granted(&mut self, stripe: u8, sn: u64) -> Found {
        let last = &mut self.granted[usize::from(stripe)];
        if sn <= *last {
            return broken(
                Rule::I2,
                format!("stripe {stripe}: sn{} is granted after sn{}", counted(sn), counted(*last)),
            );
        }
        *last = sn;
        Ok(())
    }

    /// An operation has a lock and will touch these bytes.
    pub fn locked(&mut self, world: &World, tag: Tag, part: u8, sn: u64) -> Found {
        let Part { stripe, start, end } = world.op(tag).op.parts()[usize::from(part)];
        let used = Use { part, stripe, sn, start, end, active: true, order: None, saw: [POISON; BYTES] };
        let others = self.ops.iter().enumerate().filter(|(op, _)| world.ops[*op].node != world.op(tag).node);
        for (other, theirs) in others.flat_map(|(other, past)| past.on(stripe).map(move |used| (other, used)))
        {
            if !theirs.active {
                continue;
            }
            let overlap = start < theirs.end && theirs.start < end;
            let (mine, other_mode) = (world.mode(tag), world.mode(number(other)));
            let (older, newer) = if theirs.sn < sn { (other_mode, mine) } else { (mine, other_mode) };
            let fits = match older {
                LockMode::Pr => newer == LockMode::Pr,
                LockMode::Nbw => newer.is_blind_write(),
                LockMode::Bw | LockMode::Pw => false,
            };
            if overlap && !fits {
                let what = format!(
                    "stripe {stripe}: {} ({mine}, sn{}) and {} ({other_mode}, sn{}) use locks on the same bytes",
                    world.title(tag),
                    counted(sn),
                    world.title(number(other)),
                    counted(theirs.sn)
                );
                return broken(Rule::I1, what);
            }
        }
        let uses = &mut self.past(tag).uses;
        uses.push(used);
        uses.sort_unstable();
        Ok(())
    }

    /// A lock is given up before anything was done under it.
    pub fn given_up(&mut self, tag: Tag, part: u8) {
        self.past(tag).uses.retain(|used| used.part != part);
    }

    /// An append knows where it goes.
    pub fn placed(&mut self, world: &World, tag: Tag, stripe: u8, offset: u64, length: u8) -> Found {
        if let Some(expected) = self.length(world, stripe)
            && expected != offset
        {
            let what =
                format!("{} goes to {offset}, but the stripe is {expected} bytes long", world.title(tag));
            return broken(Rule::I5, what);
        }
        let start = u8::try_from(offset).expect("scripts stay small");
        let used = self.past(tag).part(0);
        (used.start, used.end) = (start, start + length);
        Ok(())
    }

    /// A write has marked its bytes, or a truncate is done.
    pub fn committed(&mut self, world: &World, tag: Tag, part: u8) {
        let (node, stripe) = (world.op(tag).node, self.past(tag).part(part).stripe);
        let mine = self.ops.iter().zip(&world.ops).filter(|(_, info)| info.node == node);
        let order = mine.flat_map(|(past, _)| past.on(stripe)).filter(|used| used.order.is_some()).count();
        let used = self.past(tag).part(part);
        used.order = Some(u8::try_from(order).expect("scripts stay small"));
    }

    /// An operation does not use one of its locks any longer.
    pub fn finished(&mut self, tag: Tag, part: u8) {
        self.past(tag).part(part).active = false;
    }

    /// An operation returned an error: what it wrote is in doubt.
    pub fn failed(&mut self, tag: Tag) {
        let past = self.past(tag);
        (past.phase, past.doubtful) = (Phase::Failed, true);
        past.uses.iter_mut().for_each(|used| used.active = false);
    }

    /// A client is gone: what it has written since its last fsync is in doubt, and it uses no lock.
    pub fn vanished(&mut self, world: &World, node: usize) {
        let synced =
            self.ops.iter().zip(&world.ops).filter(|(past, info)| {
                info.node == node && info.op == Op::Sync && past.phase == Phase::Returned
            });
        let safe = synced.fold(0, |set, (past, _)| set | past.before);
        for (op, (past, info)) in self.ops.iter_mut().zip(&world.ops).enumerate() {
            if info.node == node {
                past.doubtful |= past.phase != Phase::Ahead && safe & 1 << op == 0;
                past.uses.iter_mut().for_each(|used| used.active = false);
            }
        }
    }

    /// Who wrote or cut a byte, newest first: key and tag. Those in doubt are among them.
    fn writers(&self, world: &World, stripe: u8, byte: usize) -> Vec<((u64, u8), Tag)> {
        let mut found: Vec<((u64, u8), Tag)> = Vec::new();
        for (op, past) in self.ops.iter().enumerate() {
            let Some(used) = past.at(stripe, byte).filter(|_| world.ops[op].op.writes()) else {
                continue;
            };
            if used.order.is_some() || past.doubtful {
                found.push(((used.sn, used.order.unwrap_or(u8::MAX)), number(op)));
            }
        }
        found.sort_unstable_by(|a, b| b.cmp(a));
        found
    }

    fn in_doubt(&self, tag: Tag) -> bool {
        self.ops[usize::from(tag) - 1].doubtful
    }

    /// The length that the marked writes give a stripe; `None` if some are in doubt.
    fn length(&self, world: &World, stripe: u8) -> Option<u64> {
        let mut length = world.config.length;
        let mut found: Vec<((u64, u8), Tag, Use)> = Vec::new();
        for (op, past) in self.ops.iter().enumerate().filter(|(op, _)| world.ops[*op].op.writes()) {
            if past.doubtful && past.on(stripe).next().is_some() {
                return None;
            }
            found
                .extend(past.on(stripe).filter_map(|used| Some(((used.sn, used.order?), number(op), *used))));
        }
        found.sort_unstable_by_key(|(key, ..)| *key);
        for (_, tag, used) in found {
            length = if world.op(tag).op.cuts() { used.start } else { length.max(used.end) };
        }
        Some(u64::from(length))
    }

    /// Notes which lengths are true now, for those who may ask. A cut that its server may have done already may count or not. While
    /// a write lengthens the stripe, who asks may be told any length between the old and the new one: writers are not asked at one
    /// moment.
    pub fn note_lengths(&mut self, world: &World) {
        for stripe in 0..world.config.stripes {
            let length = self.length(world, stripe);
            let before =
                std::mem::replace(&mut self.lengths[usize::from(stripe)], length.unwrap_or_default());
            let mut now: u8 = match length {
                Some(length) => (before.min(length)..=length).fold(0, |set, length| set | 1 << length),
                None => u8::MAX,
            };
            for (past, _) in self.ops.iter().zip(&world.ops).filter(|(_, info)| info.op.cuts()) {
                let cutting = past.on(stripe).filter(|used| used.active && used.order.is_none());
                now |= cutting.fold(0, |set, used| set | 1 << used.start);
            }
            for (past, info) in self.ops.iter_mut().zip(&world.ops) {
                let asks = matches!(info.op, Op::Size { .. } | Op::Read(_)) && past.phase == Phase::Running;
                let lengths = &mut past.lengths[usize::from(stripe)];
                *lengths = if asks { *lengths | now } else { 0 };
            }
        }
    }

    /// An operation was told how long a stripe is: so it was since it began (see [`Ghost::note_lengths`]).
    pub fn sized(&self, world: &World, tag: Tag, stripe: u8, size: u64) -> Found {
        let lengths = self.ops[usize::from(tag) - 1].lengths[usize::from(stripe)];
        if size < 8 && lengths & 1 << size != 0 {
            return Ok(());
        }
        let lengths: Vec<u32> = (0..8).filter(|length| lengths & 1 << length != 0).collect();
        broken(Rule::I5, format!("{} finds {size} bytes, but there were {lengths:?}", world.title(tag)))
    }

    /// A read has its bytes; `size` if it asked for the length.
    pub fn read(&mut self, world: &World, tag: Tag, part: u8, bytes: Bytes, size: Option<u64>) -> Found {
        let used = *self.past(tag).part(part);
        let stripe = used.stripe;
        let (start, mut end) = (usize::from(used.start), usize::from(used.end));
        if let Some(size) = size {
            if (start, end) != (0, BYTES) {
                self.sized(world, tag, stripe, size)?;
            } else if let Some(expected) = self.length(world, stripe)
                && expected != size
            {
                let what = format!("{} finds {size} bytes, but there are {expected}", world.title(tag));
                return broken(Rule::I5, what);
            }
            end = end.min(usize::try_from(size).unwrap_or(end)).max(start);
        }
        let mut saw = [POISON; BYTES];
        for byte in start..end {
            saw[byte] = self.seen(world, tag, (stripe, byte), bytes[byte], used.sn)?;
        }
        self.past(tag).part(part).saw = saw;
        Ok(())
    }

    /// Whose byte a read of `found` saw.
    fn seen(&self, world: &World, reader: Tag, at: (u8, usize), found: Tag, sn: u64) -> Result<Tag, Broken> {
        let (stripe, byte) = at;
        let mut expected = 0;
        for ((number, _), writer) in self.writers(world, stripe, byte) {
            let content = if world.op(writer).op.cuts() { 0 } else { writer };
            expected = content;
            if content == found && (number <= sn || self.in_doubt(writer)) {
                self.not_lost_before(world, reader, at, writer, number)?;
                return Ok(writer);
            }
            if !self.in_doubt(writer) {
                break;
            }
            expected = 0;
        }
        if found == 0 && expected == 0 {
            return Ok(0);
        }
        let name = |tag: Tag| match tag {
            0 => String::from("a zero"),
            POISON => String::from("a byte of a page that nothing valid is in"),
            tag => format!("the byte of {}", world.title(tag)),
        };
        let what = format!(
            "{} (sn{}) returns {} for byte {byte} of stripe {stripe}, not {}",
            world.title(reader),
            counted(sn),
            name(found),
            name(expected)
        );
        broken(Rule::I5, what).map(|()| 0)
    }

    /// A byte that an earlier reader should have seen, and did not, must not come back.
    fn not_lost_before(&self, world: &World, reader: Tag, at: (u8, usize), writer: Tag, sn: u64) -> Found {
        let (stripe, byte) = at;
        for (op, past) in self.ops.iter().enumerate().filter(|(_, past)| past.phase == Phase::Returned) {
            let Some(used) = past.at(stripe, byte) else { continue };
            let saw = used.saw[byte];
            if saw == POISON || saw == writer || used.sn <= sn || self.key(at, saw) > self.key(at, writer) {
                continue;
            }
            let what = format!(
                "{} did not find byte {byte} of {} on stripe {stripe}, and {} finds it again",
                world.title(number(op)),
                world.title(writer),
                world.title(reader)
            );
            return broken(Rule::I7, what);
        }
        Ok(())
    }

    fn key(&self, (stripe, byte): (u8, usize), tag: Tag) -> (u64, u8) {
        if tag == 0 {
            return (0, 0);
        }
        let used = self.ops[usize::from(tag) - 1].at(stripe, byte);
        used.map_or((0, 0), |used| (used.sn, used.order.unwrap_or(u8::MAX)))
    }

    /// An operation returns: the calls so far must have an order (I5, whole calls).
    pub fn returned(&mut self, world: &World, tag: Tag) -> Found {
        let past = self.past(tag);
        past.phase = Phase::Returned;
        past.uses.iter_mut().for_each(|used| used.active = false);
        let mut after = self.real_time();
        for stripe in 0..world.config.stripes {
            for byte in 0..BYTES {
                self.byte_order(world, stripe, byte, &mut after);
            }
        }
        match cycle(&after) {
            0 => Ok(()),
            set => {
                let names = (0..self.ops.len()).filter(|op| set & 1 << op != 0);
                let names: Vec<String> = names.map(|op| world.title(number(op))).collect();
                broken(Rule::I5Whole, format!("no order of whole calls explains {}", names.join(", ")))
            }
        }
    }

    /// For each operation the set of those that come after it, as real time has it. Those in doubt have no place.
    fn real_time(&self) -> Vec<u16> {
        let mut after = vec![0; self.ops.len()];
        for (op, past) in self.ops.iter().enumerate().filter(|(_, past)| !past.doubtful) {
            for (earlier, set) in after.iter_mut().enumerate() {
                if past.before & 1 << earlier != 0 && !self.ops[earlier].doubtful {
                    *set |= 1 << op;
                }
            }
        }
        after
    }

    /// Adds what one byte says about the order.
    fn byte_order(&self, world: &World, stripe: u8, byte: usize, after: &mut [u16]) {
        let mut writers: Vec<((u64, u8), usize)> = Vec::new();
        let mut readers: Vec<((u64, u8), usize, Tag)> = Vec::new();
        for (op, past) in self.ops.iter().enumerate().filter(|(_, past)| !past.doubtful) {
            let Some(used) = past.at(stripe, byte) else { continue };
            if used.saw[byte] != POISON {
                readers.push((self.key((stripe, byte), used.saw[byte]), op, used.saw[byte]));
            } else if world.ops[op].op.writes() {
                writers.push(((used.sn, used.order.unwrap_or(u8::MAX)), op));
            }
        }
        writers.sort_unstable();
        for pair in writers.windows(2) {
            after[pair[0].1] |= 1 << pair[1].1;
        }
        for (seen, reader, _) in readers {
            for (key, writer) in &writers {
                if *key <= seen {
                    after[*writer] |= 1 << reader;
                } else {
                    after[reader] |= 1 << *writer;
                }
            }
        }
    }

    /// An `fsync` returns: what its client wrote before it began is durable, or something newer is.
    pub fn synced(&self, world: &World, tag: Tag, stored: &[&Stored]) -> Found {
        let (node, before) = (world.op(tag).node, self.ops[usize::from(tag) - 1].before);
        for (stripe, stored) in (0..world.config.stripes).zip(stored) {
            for byte in 0..BYTES {
                let writers = self.writers(world, stripe, byte);
                let mine = writers.iter().find(|(_, writer)| {
                    world.op(*writer).node == node
                        && before & 1 << (usize::from(*writer) - 1) != 0
                        && !self.in_doubt(*writer)
                });
                let Some((key, writer)) = mine else { continue };
                let durable = stored.durable[byte];
                let content = |tag: Tag| if world.op(tag).op.cuts() { 0 } else { tag };
                if !writers.iter().any(|(other, tag)| other >= key && content(*tag) == durable) {
                    let what = format!(
                        "{} returned, but byte {byte} of {} on stripe {stripe} is not durable",
                        world.title(tag),
                        world.title(*writer)
                    );
                    return broken(Rule::I9, what);
                }
            }
        }
        Ok(())
    }

    /// The newest write of a byte, if it is not in doubt.
    #[must_use]
    pub fn newest(&self, world: &World, stripe: u8, byte: usize) -> Option<Tag> {
        let (_, tag) = *self.writers(world, stripe, byte).first()?;
        (!self.in_doubt(tag)).then_some(tag)
    }
}

/// The tag of an operation by its place.
fn number(op: usize) -> Tag {
    Tag::try_from(op + 1).expect("at most 16 operations")
}

/// The operations that are on a cycle or behind one; 0 if there is none.
fn cycle(after: &[u16]) -> u16 {
    let mut left: u16 = (0..after.len()).fold(0, |set, op| set | 1 << op);
    loop {
        let reached = (0..after.len()).filter(|op| left & 1 << op != 0).fold(0, |set, op| set | after[op]);
        // Whoever nobody points to comes first and may be taken away.
        let rest = left & reached;
        if rest == left || rest == 0 {
            return rest;
        }
        left = rest;
    }
}
