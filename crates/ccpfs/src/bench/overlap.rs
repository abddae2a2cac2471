//! The test of the paper's Fig. 7: overlapping writes of a whole range, of which every reader must see one, complete.

use super::data::RankData;
use super::protocol::{Job, Report, WrongPart};
use super::target::Target;
use crate::failure::{Context, Failure};

/// Writes that each client does.
const WRITES: u64 = 2;
/// Bytes that are enough to recognise a writer.
const SAMPLE_BYTES: u64 = 64;

/// Reads the whole range at once and tells whose write fills it.
pub(crate) fn identify(job: &Job, target: &Target) -> Result<Report, Failure> {
    let shape = job.shape;
    let length = usize::try_from(shape.transfer_bytes).context(|| "too much memory".to_owned())?;
    let mut found = vec![0; length];
    let count = target.read(&mut found, 0)?;
    let found = &found[..count];
    let mut report = Report::default();
    let sample_bytes = SAMPLE_BYTES.min(shape.transfer_bytes);
    let sample = &found[..count.min(usize::try_from(sample_bytes).expect("a small constant"))];
    let candidates = (0..shape.clients).flat_map(|rank| (0..WRITES).map(move |write| (rank, write)));
    let mut first = candidates
        .filter(|(rank, write)| RankData::new(*rank, shape.round, sample_bytes).transfer(*write) == sample);
    let wrong = |expected_rank, offset, text: String| WrongPart {
        file: job.path.clone(),
        offset,
        expected_rank,
        found: text,
    };
    let Some((rank, write)) = first.next() else {
        report.wrong_bytes = shape.transfer_bytes;
        report.wrong_parts.push(wrong(0, 0, "a start that no client wrote".to_owned()));
        return Ok(report);
    };
    let expected = RankData::new(rank, shape.round, shape.transfer_bytes);
    match expected.check(write, found, shape.clients, shape.round) {
        Ok(()) => report.winner = Some((rank, write)),
        Err(mismatch) => {
            report.wrong_bytes = mismatch.wrong_bytes;
            report.wrong_parts.push(wrong(rank, mismatch.at, mismatch.found));
        }
    }
    Ok(report)
}

/// What is wrong when the readers' answers are taken together: all must name the same client's last write.
pub(crate) fn judge(winners: &[Option<(u32, u64)>]) -> Option<String> {
    let first = winners.first().copied().flatten()?;
    if let Some(other) = winners.iter().flatten().find(|winner| **winner != first) {
        return Some(format!(
            "one reader sees write {} of client {}, another write {} of client {}",
            first.1 + 1,
            first.0,
            other.1 + 1,
            other.0
        ));
    }
    let (rank, write) = first;
    (write + 1 != WRITES)
        .then(|| format!("write {} of client {rank} was seen, though it wrote again", write + 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::plan::{Shape, Workload};
    use crate::bench::protocol::Backend;
    use std::path::PathBuf;

    fn job() -> Job {
        let shape =
            Shape { clients: 3, transfer_bytes: 5000, transfer_count: 2, stripe_bytes: 4096, round: 4 };
        Job {
            rank: 0,
            workload: Workload::Overlap,
            shape,
            stripes: 1,
            mode: None,
            backend: Backend::Memory,
            path: PathBuf::from("file"),
            spoil: false,
            turns: PathBuf::new(),
        }
    }

    #[test]
    fn a_complete_write_is_recognised() {
        let data = RankData::new(2, 4, 5000);
        for write in [0, 1] {
            let report = identify(&job(), &Target::Memory(data.transfer(write).to_vec())).unwrap();
            assert_eq!((report.winner, report.wrong_bytes), (Some((2, write)), 0));
        }
    }

    #[test]
    fn a_mixture_of_writes_is_wrong_and_named() {
        let mut bytes = RankData::new(2, 4, 5000).transfer(1).to_vec();
        bytes[3000..].copy_from_slice(&RankData::new(1, 4, 5000).transfer(1)[3000..]);
        let report = identify(&job(), &Target::Memory(bytes)).unwrap();
        assert!(report.winner.is_none() && report.wrong_bytes > 1500);
        let part = &report.wrong_parts[0];
        assert_eq!((part.expected_rank, part.found.as_str()), (2, "data of rank 1"));
        let report = identify(&job(), &Target::Memory(vec![0; 5000])).unwrap();
        assert_eq!((report.winner, report.wrong_bytes), (None, 5000));
    }

    #[test]
    fn all_readers_must_see_the_last_write_of_one_client() {
        assert_eq!(judge(&[Some((1, 1)), Some((1, 1))]), None);
        assert!(judge(&[Some((1, 1)), Some((2, 1))]).unwrap().contains("client 2"));
        assert!(judge(&[Some((1, 0)), Some((1, 0))]).unwrap().contains("wrote again"));
    }
}
