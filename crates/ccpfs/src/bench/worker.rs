//! `ccpfs bench ior-client`: one client process; does what the coordinator says, step by step.

use super::data::{Mismatch, RankData};
use super::member::{Member, WRONG_PARTS_MAX};
use super::overlap;
use super::plan::Workload;
use super::protocol::{Backend, Job, Report, Step, WrongPart};
use super::target::{Access, How, Target};
use crate::failure::{Context, Failure};
use crate::sys;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;

/// A client process between two steps.
pub(crate) struct Worker {
    job: Job,
    access: Access,
    data: RankData,
    turns: Option<UnixDatagram>,
    open: Option<Target>,
}

impl Member for Worker {
    type Job = Job;
    type Step = Step;

    fn name_of(job: &Job) -> String {
        format!("client {}", job.rank)
    }

    fn prepare(job: Job) -> Result<Worker, Failure> {
        let access = Access::prepare(&job)?;
        let mut data = RankData::new(job.rank, job.shape.round, job.shape.transfer_bytes);
        if job.spoil {
            data.spoil();
        }
        let turns = if job.workload == Workload::ConflictSequential && job.rank < job.shape.clients {
            let path = job.turns.join(job.rank.to_string());
            Some(UnixDatagram::bind(&path).context(|| format!("cannot bind {}", path.display()))?)
        } else {
            None
        };
        Ok(Worker { job, access, data, turns, open: None })
    }

    fn perform(&mut self, step: &Step) -> Result<Report, Failure> {
        let own = self.path_of(self.job.rank);
        let before = self.access.statistics();
        let start_ns = sys::monotonic_ns();
        let mut report = Report::default();
        match *step {
            Step::Create => self.open = Some(self.access.open(&own, How::Create)?),
            Step::Open => self.open = Some(self.access.open(&own, How::ReadWrite)?),
            Step::Write => self.write()?,
            Step::Flush => self.flush()?,
            Step::Verify { of } => report = self.verify(of)?,
            Step::Identify => {
                let target = self.access.open(&own, How::Read)?;
                report = overlap::identify(&self.job, &target)?;
                target.close()?;
            }
            Step::Remove => self.access.remove(&own)?,
            Step::Quit => {}
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
        if self.job.workload.has_own_files() {
            let mut path = self.job.path.clone().into_os_string();
            path.push(format!(".{rank}"));
            PathBuf::from(path)
        } else {
            self.job.path.clone()
        }
    }

    /// Where a transfer of `rank` goes.
    fn offset(&self, rank: u32, transfer: u64) -> u64 {
        match self.job.backend {
            // Each process has only memory for itself.
            Backend::Memory if self.job.workload != Workload::Overlap => {
                transfer * self.job.shape.transfer_bytes
            }
            Backend::Memory | Backend::Local | Backend::Ccpfs { .. } => {
                self.job.workload.offset(&self.job.shape, rank, transfer)
            }
        }
    }

    fn write(&mut self) -> Result<(), Failure> {
        let mut target = self.open.take().ok_or_else(|| Failure::new("no file is open"))?;
        let mut scratch = match self.job.workload {
            Workload::MixedReadWrite => self.data.transfer(0).to_vec(),
            Workload::Nn
            | Workload::Segmented
            | Workload::Strided
            | Workload::ConflictSequential
            | Workload::ConflictParallel
            | Workload::TwoStripe
            | Workload::Overlap => Vec::new(),
        };
        for transfer in 0..self.job.shape.transfer_count {
            self.wait_for_turn(transfer)?;
            let offset = self.offset(self.job.rank, transfer);
            target.write(self.data.transfer(transfer), offset)?;
            self.pass_turn()?;
            if !scratch.is_empty() {
                target.read(&mut scratch, offset)?;
            }
        }
        self.open = Some(target);
        Ok(())
    }

    /// Blocks until the client before this one has written. The first has no one before it.
    fn wait_for_turn(&self, transfer: u64) -> Result<(), Failure> {
        let Some(turns) = &self.turns else { return Ok(()) };
        if self.job.rank == 0 && transfer == 0 {
            return Ok(());
        }
        turns.recv(&mut [0]).context(|| "waiting for the turn".to_owned())?;
        Ok(())
    }

    fn pass_turn(&self) -> Result<(), Failure> {
        let Some(turns) = &self.turns else { return Ok(()) };
        let next = (self.job.rank + 1) % self.job.shape.clients;
        turns
            .send_to(&[1], self.job.turns.join(next.to_string()))
            .context(|| format!("passing the turn to client {next}"))?;
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Failure> {
        let target = self.open.take().ok_or_else(|| Failure::new("no file is open"))?;
        target.sync()?;
        if matches!(target, Target::Memory(_)) {
            self.open = Some(target);
            return Ok(());
        }
        target.close()
    }

    /// Reads everything that `of` wrote.
    fn verify(&mut self, of: u32) -> Result<Report, Failure> {
        let path = self.path_of(of);
        let target = match self.open.take() {
            Some(target @ Target::Memory(_)) => target,
            Some(Target::Ccpfs(_) | Target::Local(_)) | None => self.access.open(&path, How::Read)?,
        };
        let shape = self.job.shape;
        let expected = RankData::new(of, shape.round, shape.transfer_bytes);
        let mut found = vec![0; expected.transfer(0).len()];
        let mut report = Report::default();
        for transfer in 0..shape.transfer_count {
            let offset = self.offset(of, transfer);
            let count = target.read(&mut found, offset)?;
            let checked = expected.check(transfer, &found[..count], shape.clients, shape.round);
            if let Err(Mismatch { at, wrong_bytes, found }) = checked {
                report.wrong_bytes += wrong_bytes;
                if report.wrong_parts.len() < WRONG_PARTS_MAX {
                    let file = path.clone();
                    report.wrong_parts.push(WrongPart {
                        file,
                        offset: offset + at,
                        expected_rank: of,
                        found,
                    });
                }
            }
        }
        target.close()?;
        Ok(report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::plan::Shape;
    use std::path::Path;

    fn worker(folder: &Path, rank: u32, workload: Workload, backend: Backend) -> Worker {
        let shape =
            Shape { clients: 2, transfer_bytes: 1000, transfer_count: 5, stripe_bytes: 4096, round: 1 };
        let (path, turns) = (folder.join("file"), folder.to_owned());
        Worker::prepare(Job {
            rank,
            workload,
            shape,
            stripes: 1,
            mode: None,
            backend,
            path,
            spoil: false,
            turns,
        })
        .unwrap()
    }

    #[test]
    fn what_one_client_writes_another_finds_right() {
        for workload in [Workload::Nn, Workload::Segmented, Workload::Strided, Workload::MixedReadWrite] {
            let folder = tempfile::tempdir().unwrap();
            let mut workers = [0, 1].map(|rank| worker(folder.path(), rank, workload, Backend::Local));
            workers[0].perform(&Step::Create).unwrap();
            let second = if workload.has_own_files() { Step::Create } else { Step::Open };
            workers[1].perform(&second).unwrap();
            for worker in &mut workers {
                worker.perform(&Step::Write).unwrap();
                worker.perform(&Step::Flush).unwrap();
            }
            for (rank, of) in [(0, 1), (1, 0)] {
                let report = workers[rank].perform(&Step::Verify { of }).unwrap();
                assert_eq!((report.wrong_bytes, report.wrong_parts), (0, vec![]), "{workload:?}");
                assert!(report.end_ns >= report.start_ns);
            }
            workers[0].perform(&Step::Remove).unwrap();
            assert!(!workers[0].path_of(0).exists());
        }
    }

    #[test]
    fn a_wrong_byte_is_reported_with_file_offset_and_ranks() {
        let folder = tempfile::tempdir().unwrap();
        let mut workers = [0, 1].map(|rank| worker(folder.path(), rank, Workload::Strided, Backend::Local));
        workers[0].perform(&Step::Create).unwrap();
        workers[1].perform(&Step::Open).unwrap();
        for worker in &mut workers {
            worker.perform(&Step::Write).unwrap();
        }
        let data = workers[0].data.clone();
        let target = workers[1].open.as_mut().unwrap();
        target.write(&data.transfer(0)[..500], 3000).unwrap();
        let report = workers[0].perform(&Step::Verify { of: 1 }).unwrap();
        assert!(report.wrong_bytes > 400);
        let part = &report.wrong_parts[0];
        assert_eq!((part.expected_rank, part.found.as_str()), (1, "data of rank 0"));
        assert_eq!((part.file.clone(), part.offset / 4), (folder.path().join("file"), 750));
    }

    #[test]
    fn memory_is_written_and_checked_by_the_process_that_has_it() {
        let folder = tempfile::tempdir().unwrap();
        let mut worker = worker(folder.path(), 1, Workload::Segmented, Backend::Memory);
        for step in [Step::Create, Step::Write, Step::Flush] {
            worker.perform(&step).unwrap();
        }
        assert_eq!(worker.perform(&Step::Verify { of: 1 }).unwrap().wrong_bytes, 0);
    }

    #[test]
    fn clients_take_turns() {
        let folder = tempfile::tempdir().unwrap();
        let workers =
            [0, 1].map(|rank| worker(folder.path(), rank, Workload::ConflictSequential, Backend::Local));
        workers[0].wait_for_turn(0).unwrap();
        workers[0].pass_turn().unwrap();
        workers[1].wait_for_turn(0).unwrap();
        workers[1].pass_turn().unwrap();
        workers[0].wait_for_turn(1).unwrap();
    }
}
