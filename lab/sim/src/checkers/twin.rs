//! The dumb twin of the order checker: tries every order of all calls, byte by byte.

use super::tests::{Scene, UNIT, extent};
use crate::history::{Call, OpId, Operation, Outcome, Tag};
use ccpfs_types::Sn;

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

const BYTES: usize = 4;

/// Four bytes of two stripes: 0 and 1 in the first, 2 and 3 in the second.
fn place(byte: usize) -> u64 {
    UNIT - 2 + byte as u64
}

fn byte_of(offset: u64) -> usize {
    usize::try_from(offset + 2 - UNIT).unwrap()
}

/// Whether `order` explains all that was seen, agrees with real time, and with the numbers of the locks.
fn explains(operations: &[Operation], order: &[usize]) -> bool {
    let mut bytes: [Tag; BYTES] = [None; BYTES];
    let mut newest = [(Sn(0), 0); BYTES];
    for (turn, which) in order.iter().enumerate() {
        let operation = &operations[*which];
        let later = &order[turn + 1..];
        if later.iter().any(|o| operations[*o].returned.unwrap().step < operation.invoked.step) {
            return false;
        }
        let (range, seen) = match (&operation.call, operation.outcome.as_ref().unwrap()) {
            (Call::Write { extent, .. }, _) => (*extent, None),
            (Call::Read { extent, .. }, Ok(Outcome::Read { bytes, .. })) => (*extent, Some(bytes)),
            other => panic!("{other:?}"),
        };
        for byte in byte_of(range.start())..byte_of(range.end()) {
            let stripe = u32::try_from(byte / 2).unwrap();
            let used = operation.on_stripe(stripe).next().unwrap();
            match seen {
                None => {
                    if (used.sn, used.order) < newest[byte] {
                        return false;
                    }
                    newest[byte] = (used.sn, used.order);
                    bytes[byte] = Some(operation.id);
                }
                Some(seen) => {
                    let tag =
                        seen.iter().find(|(part, _)| part.contains(extent(place(byte), place(byte) + 1)));
                    if tag.unwrap().1 != bytes[byte] {
                        return false;
                    }
                }
            }
        }
    }
    true
}

fn any_order(operations: &[Operation], chosen: &mut Vec<usize>) -> bool {
    if chosen.len() == operations.len() {
        return explains(operations, chosen);
    }
    for next in 0..operations.len() {
        if !chosen.contains(&next) {
            chosen.push(next);
            if any_order(operations, chosen) {
                return true;
            }
            chosen.pop();
        }
    }
    false
}

/// The newest call that wrote a byte before `reader` had its lock.
fn by_the_locks(operations: &[Operation], reader: &Operation, byte: usize) -> Tag {
    let stripe = u32::try_from(byte / 2).unwrap();
    let key = |operation: &Operation| {
        let used = operation.on_stripe(stripe).next().unwrap();
        (used.sn, used.order)
    };
    let wrote =
        |o: &&Operation| o.changes().is_some_and(|c| c.contains(extent(place(byte), place(byte) + 1)));
    let before = operations.iter().filter(wrote).filter(|o| key(o) < key(reader));
    before.max_by_key(|o| key(o)).map(|o| o.id)
}

/// Calls at random, with numbers that are mostly those of the order in which the calls run, and reads of mostly what they say.
fn scene(random: &mut Random) -> Scene {
    let mut scene = Scene::new(2);
    // The file is long enough for every read: what lies above is of no concern.
    scene.write(0, (1, 2, 3), 1, place(0), place(BYTES));
    let calls = 2 + random.below(4);
    let mut step = 10;
    for call in 0..calls {
        step += 10;
        let steps = (step - random.below(25).min(step - 5), step, step + 1 + random.below(25));
        let first = usize::try_from(random.below(BYTES as u64)).unwrap();
        let end = first + 1 + usize::try_from(random.below((BYTES - first) as u64)).unwrap();
        let node = u32::try_from(random.below(3)).unwrap();
        let id = if random.below(2) == 0 {
            scene.write(node, steps, call + 2, place(first), place(end))
        } else {
            let runs: Vec<_> = (first..end).map(|byte| (place(byte), place(byte) + 1, None)).collect();
            scene.read(node, steps, call + 2, (place(first), place(end)), &runs)
        };
        if random.below(3) == 0 {
            let stripe = usize::try_from(random.below(2)).unwrap();
            let used = &mut scene.history.operations[id.0 as usize].stripes[stripe];
            used.sn = Sn(2 + random.below(calls));
        }
    }
    let operations = scene.history.operations.clone();
    for operation in &mut scene.history.operations {
        let reader = operation.clone();
        if let Some(Ok(Outcome::Read { bytes, .. })) = &mut operation.outcome {
            for (part, tag) in bytes {
                let odd = random.below(20) == 0;
                *tag = if odd {
                    Some(OpId(0))
                } else {
                    by_the_locks(&operations, &reader, byte_of(part.start()))
                };
            }
        }
    }
    scene
}

/// Whether every read saw what the numbers of the locks say it must: the part of I5 that an order of calls does not show.
fn is_by_the_locks(operations: &[Operation]) -> bool {
    operations.iter().all(|reader| match &reader.outcome {
        Some(Ok(Outcome::Read { bytes, .. })) => {
            bytes.iter().all(|(part, tag)| by_the_locks(operations, reader, byte_of(part.start())) == *tag)
        }
        Some(_) | None => true,
    })
}

#[test]
fn the_graph_and_every_order_agree() {
    let mut random = Random(0x1234_5678_9abc_def1);
    let (mut good, mut torn, mut wrong) = (0, 0, 0);
    for round in 0..3000 {
        let scene = scene(&mut random);
        let operations = &scene.history.operations;
        let expected = is_by_the_locks(operations) && any_order(operations, &mut Vec::new());
        let found = scene.check();
        assert_eq!(found.is_ok(), expected, "round {round}: {found:?}\n{operations:#?}");
        match found {
            Ok(_) => good += 1,
            Err(violation) if violation.what.contains("no order") => torn += 1,
            Err(_) => wrong += 1,
        }
    }
    assert!(good > 300 && torn > 100 && wrong > 100, "{good} good, {torn} torn, {wrong} wrong");
}
