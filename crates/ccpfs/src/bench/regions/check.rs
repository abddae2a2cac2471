//! Whether what a reader found can be what the calls left: every byte from one that wrote it, and all calls in one order.
//!
//! A file's end state is that of atomic calls one after the other if and only if (a) each stretch that the same calls
//! wrote holds the bytes of one of them, (b) "its bytes are there although the other wrote them too" has no circle. No reader need have been
//! there in between: a call that is seen in part in one place and not in another makes such a circle with the call that it lost to.

use crate::bench::data::RankData;
use ccpfs_region::Region;
use ccpfs_types::Extent;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// A call that may have written what is looked at.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub(crate) rank: u32,
    /// The number of the call.
    pub(crate) operation: u64,
    pub(crate) region: Region,
    pub(crate) data: Rc<RankData>,
}

/// What is wrong in a stretch of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// The first wrong byte of the file.
    pub(crate) offset: u64,
    pub(crate) wrong_bytes: u64,
    /// What is there, for a person.
    pub(crate) found: String,
}

/// What was seen of one region.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) faults: Vec<Fault>,
    /// Pairs of ranks: the bytes of the first are where the second wrote too.
    pub(crate) beats: BTreeSet<(u32, u32)>,
}

/// Fewest bytes by which a writer is told apart from others: fewer may be the same by chance.
const TELLING_BYTES: usize = 4;

fn index(bytes: u64) -> usize {
    usize::try_from(bytes).expect("an operation fits into memory")
}

impl Candidate {
    /// The bytes that it wrote at `offset`, which is in its region.
    fn bytes(&self, offset: u64, length: usize) -> &[u8] {
        let start = index(self.region.bytes_before(offset));
        &self.data.transfer(self.operation)[start..start + length]
    }
}

/// Looks at one piece. `candidates` are all calls that wrote a part of it; `atomic`: each of them as a whole.
pub(crate) fn piece(seen: &mut Seen, piece: Extent, found: &[u8], candidates: &[&Candidate], atomic: bool) {
    let mut at = piece.start();
    while at < piece.end() {
        let mut end = piece.end();
        let mut writers = Vec::new();
        for candidate in candidates {
            match candidate.region.piece_from(at) {
                Some(theirs) if theirs.start() == at => {
                    writers.push(*candidate);
                    end = end.min(theirs.end());
                }
                Some(theirs) => end = end.min(theirs.start()),
                None => {}
            }
        }
        let (from, to) = (index(at - piece.start()), index(end - piece.start()));
        stretch(
            seen,
            at,
            &found[from.min(found.len())..to.min(found.len())],
            index(end - at),
            &writers,
            atomic,
        );
        at = end;
    }
}

/// Looks at bytes that the same calls wrote.
fn stretch(seen: &mut Seen, offset: u64, found: &[u8], length: usize, writers: &[&Candidate], atomic: bool) {
    let missing = length - found.len();
    let matching: Vec<&&Candidate> =
        writers.iter().filter(|writer| missing == 0 && writer.bytes(offset, length) == found).collect();
    if let [winner] = matching[..] {
        if length >= TELLING_BYTES {
            let others = writers.iter().filter(|writer| writer.rank != winner.rank);
            seen.beats.extend(others.map(|writer| (winner.rank, writer.rank)));
        }
        return;
    }
    if !matching.is_empty() {
        return;
    }
    let nobodys = |at: usize| writers.iter().all(|writer| writer.bytes(offset, length)[at] != found[at]);
    let first = (0..found.len()).find(|at| nobodys(*at));
    if first.is_none() && missing == 0 {
        // Every byte is somebody's, but not all of one.
        if atomic {
            let ranks: Vec<String> = writers.iter().map(|writer| writer.rank.to_string()).collect();
            let found = format!("a mixture of what ranks {} wrote", ranks.join(", "));
            seen.faults.push(Fault {
                offset,
                wrong_bytes: u64::try_from(length).expect("below 2^64"),
                found,
            });
        }
        return;
    }
    let wrong = (0..found.len()).filter(|at| nobodys(*at)).count() + missing;
    let first = first.unwrap_or(found.len());
    let found = match found.get(first..) {
        None | Some([]) => "nothing: the file ends".to_owned(),
        Some(rest) if rest.iter().take(16).all(|byte| *byte == 0) => {
            "zeros: never written, or lost".to_owned()
        }
        Some(_) => "bytes that no call wrote there".to_owned(),
    };
    let at = u64::try_from(first).expect("below 2^64");
    let wrong_bytes = u64::try_from(wrong).expect("below 2^64");
    seen.faults.push(Fault { offset: offset + at, wrong_bytes, found });
}

/// Ranks whose calls cannot have taken place in any order, if there are such: each has bytes where the next wrote too, the last
/// where the first did.
pub(crate) fn circle(beats: &BTreeSet<(u32, u32)>) -> Option<Vec<u32>> {
    let mut losers: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for (winner, loser) in beats {
        losers.entry(*winner).or_default().push(*loser);
    }
    let mut done = BTreeSet::new();
    for start in losers.keys() {
        // Depth first; the path, each with the number of its losers that were looked at.
        let mut path: Vec<(u32, usize)> = vec![(*start, 0)];
        while let Some((rank, looked)) = path.last_mut() {
            let (rank, at) = (*rank, *looked);
            *looked += 1;
            let Some(loser) = losers.get(&rank).and_then(|losers| losers.get(at)).copied() else {
                done.insert(rank);
                path.pop();
                continue;
            };
            if let Some(from) = path.iter().position(|(rank, _)| *rank == loser) {
                return Some(path[from..].iter().map(|(rank, _)| *rank).collect());
            }
            if !done.contains(&loser) {
                path.push((loser, 0));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use ccpfs_region::Section;

    fn candidate(rank: u32, offset: u64, length: u64) -> Candidate {
        let region = Region::from(Section::new(offset, length, &[(100, 2)]).unwrap());
        Candidate { rank, operation: 0, region, data: Rc::new(RankData::new(rank, 0, length * 2)) }
    }

    /// What is in the file when the candidates wrote in this order.
    fn file(order: &[&Candidate]) -> Vec<u8> {
        let mut file = vec![0; 300];
        for writer in order {
            for piece in writer.region.pieces() {
                let (start, end) = (index(piece.start()), index(piece.end()));
                file[start..end].copy_from_slice(writer.bytes(piece.start(), end - start));
            }
        }
        file
    }

    fn look(file: &[u8], all: &[&Candidate], atomic: bool) -> Seen {
        let mut seen = Seen::default();
        for writer in all {
            for extent in writer.region.pieces() {
                let found = &file[index(extent.start())..index(extent.end())];
                piece(&mut seen, extent, found, all, atomic);
            }
        }
        seen
    }

    #[test]
    fn calls_one_after_the_other_are_right_in_every_order() {
        let (a, b, c) = (candidate(0, 0, 40), candidate(1, 30, 40), candidate(2, 20, 30));
        for order in [[&a, &b, &c], [&c, &a, &b], [&b, &c, &a]] {
            let seen = look(&file(&order), &[&a, &b, &c], true);
            assert_eq!((seen.faults.len(), circle(&seen.beats)), (0, None));
            let last = order[2].rank;
            assert!(seen.beats.iter().all(|(_, loser)| *loser != last) && seen.beats.len() >= 2);
        }
    }

    #[test]
    fn a_call_that_won_here_and_lost_there_is_a_circle() {
        let (a, b) = (candidate(0, 0, 40), candidate(1, 30, 40));
        let (first, second) = (file(&[&a, &b]), file(&[&b, &a]));
        let torn = [&first[..100], &second[100..]].concat();
        let seen = look(&torn, &[&a, &b], true);
        assert!(seen.faults.is_empty());
        assert_eq!(circle(&seen.beats), Some(vec![0, 1]));
    }

    #[test]
    fn a_mixture_within_a_stretch_is_wrong_only_if_calls_are_atomic() {
        let (a, b) = (candidate(0, 0, 40), candidate(1, 0, 40));
        let (first, second) = (file(&[&a, &b]), file(&[&b, &a]));
        let torn = [&first[..20], &second[20..]].concat();
        let fault = &look(&torn, &[&a, &b], true).faults[0];
        assert_eq!((fault.offset, fault.wrong_bytes), (0, 40));
        assert!(fault.found.contains("ranks 0, 1"), "{fault:?}");
        assert!(look(&torn, &[&a, &b], false).faults.is_empty());
    }

    #[test]
    fn what_nobody_wrote_is_found_with_its_place() {
        let a = candidate(0, 0, 40);
        let mut found = file(&[&a]);
        found[110] ^= 1;
        let fault = look(&found, &[&a], false).faults.remove(0);
        assert_eq!((fault.offset, fault.wrong_bytes), (110, 1));
        found[100..140].fill(0);
        assert!(look(&found, &[&a], true).faults[0].found.starts_with("zeros"));
        let mut seen = Seen::default();
        piece(&mut seen, Extent::new(0, 40).unwrap(), &found[..30], &[&a], true);
        assert_eq!((seen.faults[0].offset, seen.faults[0].wrong_bytes), (30, 10));
        assert!(seen.faults[0].found.contains("ends"), "{seen:?}");
    }

    #[test]
    fn longer_circles_are_found_and_chains_are_none() {
        let pairs = |pairs: &[(u32, u32)]| circle(&pairs.iter().copied().collect());
        assert_eq!(pairs(&[(1, 2), (2, 3), (1, 3), (4, 1)]), None);
        assert_eq!(pairs(&[(1, 2), (2, 3), (3, 4), (4, 2)]), Some(vec![2, 3, 4]));
        assert_eq!(pairs(&[]), None);
    }
}
