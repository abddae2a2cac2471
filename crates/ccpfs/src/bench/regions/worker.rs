//! `ccpfs bench regions-client`: one process that writes its operations and reads those of others, step by step.

use super::check::{self, Candidate, Seen};
use super::pattern::Operation;
use super::protocol::{RegionJob, RegionStep};
use super::way::Way;
use crate::bench::coordinator::{PAGE_BYTES, PREFAULT_SLACK_BYTES};
use crate::bench::data::RankData;
use crate::bench::member::{Member, WRONG_PARTS_MAX};
use crate::bench::protocol::{Report, WrongPart};
use crate::bench::target::{Access, How, Target};
use crate::failure::{Context, Failure};
use crate::sys;
use ccpfs_client::Client;
use ccpfs_config::ClientConfig;
use ccpfs_region::Region;
use ccpfs_types::{Extent, Layout};
use std::path::PathBuf;
use std::rc::Rc;

/// A process between two steps.
pub(crate) struct Worker {
    job: RegionJob,
    access: Access,
    operations: Vec<Operation>,
    data: RankData,
    open: Option<Target>,
}

/// The operations of a process; none of one that only reads.
fn operations(job: &RegionJob, rank: u32) -> Result<Vec<Operation>, Failure> {
    if rank >= job.pattern.ranks() {
        return Ok(Vec::new());
    }
    let operations = job.pattern.operations(rank);
    operations.map_err(|error| Failure::new(format!("the operations of rank {rank}: {error:?}")))
}

/// The data of the operations of a process. Each begins at a place of its own.
fn data_of(operations: &[Operation], rank: u32, round: u32) -> RankData {
    let longest = operations.iter().map(|operation| operation.region.length_bytes()).max();
    RankData::new(rank, round, longest.unwrap_or(1))
}

/// Bytes of the pages that the operations touch.
fn page_bytes(operations: &[Operation]) -> u64 {
    let mut pages = 0;
    for operation in operations {
        let mut next = 0;
        for piece in operation.region.pieces() {
            let (first, end) = (piece.start() / PAGE_BYTES, piece.end().div_ceil(PAGE_BYTES));
            pages += end.saturating_sub(first.max(next));
            next = end.max(next);
        }
    }
    pages * PAGE_BYTES
}

fn access(job: &RegionJob, operations: &[Operation]) -> Result<Access, Failure> {
    let Some(config) = &job.config else { return Ok(Access::Local) };
    let mut config = ClientConfig::load(Some(config))?;
    let needed = page_bytes(operations).saturating_add(PREFAULT_SLACK_BYTES);
    config.prefault_bytes = needed.min(job.prefault_bytes_max).min(config.cache_bytes);
    job.way.configure(&mut config);
    let layout = Layout::new(job.stripes, job.stripe_bytes);
    let layout = layout.ok_or_else(|| Failure::new("the layout is out of range"))?;
    let client = Client::start(config).context(|| "cannot start a client".to_owned())?;
    client.prepare().context(|| "cannot prepare the cache".to_owned())?;
    Ok(Access::Ccpfs { client, layout })
}

impl Member for Worker {
    type Job = RegionJob;
    type Step = RegionStep;

    fn name_of(job: &RegionJob) -> String {
        format!("process {}", job.rank)
    }

    fn prepare(job: RegionJob) -> Result<Worker, Failure> {
        let operations = operations(&job, job.rank)?;
        let access = access(&job, &operations)?;
        let mut data = data_of(&operations, job.rank, job.round);
        if job.spoil {
            data.spoil();
        }
        Ok(Worker { job, access, operations, data, open: None })
    }

    fn perform(&mut self, step: &RegionStep) -> Result<Report, Failure> {
        let own = self.path_of(self.job.rank);
        let before = self.access.statistics();
        let start_ns = sys::monotonic_ns();
        let mut report = Report::default();
        match *step {
            RegionStep::Create => self.open = Some(self.access.open(&own, How::Create)?),
            RegionStep::Open => self.open = Some(self.access.open(&own, How::ReadWrite)?),
            RegionStep::Write => self.write()?,
            RegionStep::Flush => {
                let target = self.open.take().ok_or_else(|| Failure::new("no file is open"))?;
                if self.job.way == Way::Group {
                    target.leave_group()?;
                }
                target.sync()?;
                target.close()?;
            }
            RegionStep::Verify { of } => report = self.verify(of)?,
            RegionStep::Remove => self.access.remove(&own)?,
            RegionStep::Quit => {}
        }
        report.start_ns = start_ns;
        report.end_ns = sys::monotonic_ns();
        report.counters = self.access.statistics().since(&before).into();
        Ok(report)
    }
}

impl Worker {
    /// The file that `rank` writes to.
    fn path_of(&self, rank: u32) -> PathBuf {
        if self.job.way.has_own_files() {
            let mut path = self.job.path.clone().into_os_string();
            path.push(format!(".{rank}"));
            PathBuf::from(path)
        } else {
            self.job.path.clone()
        }
    }

    fn write(&mut self) -> Result<(), Failure> {
        let mut target = self.open.take().ok_or_else(|| Failure::new("no file is open"))?;
        if self.job.way == Way::Group {
            target.enter_group()?;
        }
        let mut ahead = (self.job.way == Way::Lockahead).then(|| Ahead::new(&self.operations));
        for (number, operation) in (0..).zip(&self.operations) {
            if let Some(ahead) = &mut ahead {
                ahead.before(&target, operation)?;
            }
            let length = usize::try_from(operation.region.length_bytes()).expect("the data fit into memory");
            let data = &self.data.transfer(number)[..length];
            write_operation(&mut target, self.job.way, &operation.region, data)?;
            if operation.sync {
                target.sync()?;
            }
        }
        self.open = Some(target);
        Ok(())
    }

    /// All calls that wrote parts of what `of` wrote, its own first, and whose region that is.
    fn candidates(&self, of: u32, operation: &Operation, number: u64) -> Result<Vec<Candidate>, Failure> {
        let own = operations(&self.job, of)?;
        let candidate = |rank, operation, region: Region, data| Candidate { rank, operation, region, data };
        let data = Rc::new(data_of(&own, of, self.job.round));
        let mut all = vec![candidate(of, number, operation.region.clone(), data)];
        if !self.job.pattern.overlaps() {
            return Ok(all);
        }
        for rank in (0..self.job.pattern.ranks()).filter(|rank| *rank != of) {
            let theirs = operations(&self.job, rank)?;
            let data = Rc::new(data_of(&theirs, rank, self.job.round));
            for (number, other) in (0..).zip(theirs) {
                if other.region.overlaps(&operation.region) {
                    all.push(candidate(rank, number, other.region, Rc::clone(&data)));
                }
            }
        }
        Ok(all)
    }

    /// Reads everything that `of` wrote.
    fn verify(&mut self, of: u32) -> Result<Report, Failure> {
        let path = self.path_of(of);
        let target = self.access.open(&path, How::Read)?;
        let mut seen = Seen::default();
        let mut found = Vec::new();
        for (number, operation) in (0..).zip(operations(&self.job, of)?) {
            let candidates = self.candidates(of, &operation, number)?;
            let candidates: Vec<&Candidate> = candidates.iter().collect();
            for piece in operation.region.pieces() {
                found.resize(usize::try_from(piece.length()).expect("a piece fits into memory"), 0);
                let count = target.read(&mut found, piece.start())?;
                check::piece(&mut seen, piece, &found[..count], &candidates, self.job.way.is_atomic());
            }
        }
        target.close()?;
        let wrong_part = |fault: &check::Fault| WrongPart {
            file: path.clone(),
            offset: fault.offset,
            expected_rank: of,
            found: fault.found.clone(),
        };
        Ok(Report {
            wrong_bytes: seen.faults.iter().map(|fault| fault.wrong_bytes).sum(),
            wrong_parts: seen.faults.iter().take(WRONG_PARTS_MAX).map(wrong_part).collect(),
            beats: seen.beats.into_iter().collect(),
            ..Report::default()
        })
    }
}

/// Locks that are asked for ahead, as MPI-IO libraries do it (paper 004, II-B): so many at a time, and more when a write comes that
/// none was asked for.
struct Ahead {
    pieces: Vec<Extent>,
    asked: usize,
    /// Where the last piece that was asked for ends.
    end: u64,
}

/// Locks that are asked for at a time: the paper's default.
const AHEAD_PIECES: usize = 500;

impl Ahead {
    fn new(operations: &[Operation]) -> Ahead {
        let pieces = operations.iter().flat_map(|operation| operation.region.pieces()).collect();
        Ahead { pieces, asked: 0, end: 0 }
    }

    fn before(&mut self, target: &Target, operation: &Operation) -> Result<(), Failure> {
        if operation.region.bounds().start() < self.end {
            return Ok(());
        }
        let to = self.pieces.len().min(self.asked + AHEAD_PIECES);
        let pieces = &self.pieces[self.asked..to];
        if let Some(last) = pieces.last() {
            target.lock_ahead(pieces)?;
            (self.asked, self.end) = (to, last.end());
        }
        Ok(())
    }
}

/// Writes one operation; `data` are its bytes, piece after piece.
fn write_operation(target: &mut Target, way: Way, region: &Region, data: &[u8]) -> Result<(), Failure> {
    match way {
        Way::Pieces | Way::Default | Way::Sections | Way::Lockahead | Way::Group | Way::OwnFiles => {
            let mut rest = data;
            for piece in region.pieces() {
                let length = usize::try_from(piece.length()).expect("a part of the data");
                let (now, later) = rest.split_at(length);
                target.write(now, piece.start())?;
                rest = later;
            }
            Ok(())
        }
        Way::Atomic(..) => target.write_region(region, data),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::regions::args::tests::picture;
    use crate::bench::regions::check::circle;
    use std::path::Path;

    fn worker(folder: &Path, rank: u32) -> Worker {
        Worker::prepare(RegionJob {
            rank,
            pattern: picture(),
            way: Way::Pieces,
            round: 3,
            stripes: 1,
            stripe_bytes: 4096,
            config: None,
            path: folder.join("file"),
            spoil: false,
            prefault_bytes_max: 0,
        })
        .unwrap()
    }

    #[test]
    fn what_two_processes_write_others_find_right_whoever_came_last() {
        let folder = tempfile::tempdir().unwrap();
        let mut workers = [0, 1, 2].map(|rank| worker(folder.path(), rank));
        workers[0].perform(&RegionStep::Create).unwrap();
        workers[1].perform(&RegionStep::Open).unwrap();
        for rank in [1, 0] {
            workers[rank].perform(&RegionStep::Write).unwrap();
            workers[rank].perform(&RegionStep::Flush).unwrap();
        }
        for of in [0, 1] {
            let report = workers[2].perform(&RegionStep::Verify { of }).unwrap();
            assert_eq!((report.wrong_bytes, report.wrong_parts), (0, vec![]));
            assert_eq!(report.beats, [(0, 1)], "the tile of 0 was written last");
            assert_eq!(circle(&report.beats.into_iter().collect()), None);
        }
        workers[0].perform(&RegionStep::Remove).unwrap();
    }

    #[test]
    fn pages_that_are_touched_are_counted_once() {
        let piece = |start, end| Region::from(ccpfs_types::Extent::new(start, end).unwrap());
        let operation = |region| Operation { region, sync: false };
        assert_eq!(page_bytes(&[operation(piece(0, 1))]), PAGE_BYTES);
        assert_eq!(page_bytes(&[operation(piece(PAGE_BYTES - 1, PAGE_BYTES + 1))]), 2 * PAGE_BYTES);
        assert_eq!(page_bytes(&picture().operations(0).unwrap()), PAGE_BYTES);
    }
}
