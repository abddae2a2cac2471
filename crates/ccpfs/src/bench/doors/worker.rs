//! `ccpfs bench doors-client`: a program behind one of the doors; does what the coordinator says, step by step.

use super::access::{Access, Opened};
use super::plan::Span;
use super::protocol::{Action, DoorJob, DoorStep, How};
use crate::bench::data::{Mismatch, RankData};
use crate::bench::member::{Member, WRONG_PARTS_MAX};
use crate::bench::protocol::{Report, WrongPart};
use crate::failure::{Context, Failure};
use crate::sys;
use std::path::{Path, PathBuf};

/// An open file, and which bytes of it are ours.
struct Work {
    path: PathBuf,
    opened: Opened,
    span: Span,
    data: RankData,
    buffer: Vec<u8>,
}

/// A process between two steps.
pub(crate) struct Worker {
    access: Access,
    spoil: bool,
    work: Option<Work>,
}

impl Member for Worker {
    type Job = DoorJob;
    type Step = DoorStep;

    fn name_of(job: &DoorJob) -> String {
        job.name.clone()
    }

    fn prepare(job: DoorJob) -> Result<Worker, Failure> {
        Ok(Worker { access: Access::prepare(&job)?, spoil: job.spoil, work: None })
    }

    fn perform(&mut self, step: &DoorStep) -> Result<Report, Failure> {
        let start_ns = sys::monotonic_ns();
        let mut report = Report::default();
        match step {
            DoorStep::Open { path, how, span } => self.open(path, *how, *span)?,
            DoorStep::Write => self.write()?,
            DoorStep::Finish => {
                let work = self.take()?;
                let failed = || work.path.display().to_string();
                self.access.sync(&work.opened).context(failed)?;
                self.access.close(work.opened).context(|| work.path.display().to_string())?;
            }
            DoorStep::Read => self.read()?,
            DoorStep::Verify => report = self.verify()?,
            DoorStep::Close => {
                let work = self.take()?;
                self.access.close(work.opened).context(|| work.path.display().to_string())?;
            }
            DoorStep::Remove { path } => {
                self.access.remove(path).context(|| path.display().to_string())?;
            }
            DoorStep::Names { action, folder, count } => {
                let paths: Vec<PathBuf> = (0..*count).map(|k| folder.join(format!("name-{k}"))).collect();
                let start_ns = sys::monotonic_ns();
                for path in &paths {
                    self.name(*action, path).context(|| path.display().to_string())?;
                }
                return Ok(Report { start_ns, end_ns: sys::monotonic_ns(), ..report });
            }
            DoorStep::Quit => {}
        }
        report.start_ns = start_ns;
        report.end_ns = sys::monotonic_ns();
        Ok(report)
    }
}

impl Worker {
    fn take(&mut self) -> Result<Work, Failure> {
        self.work.take().ok_or_else(|| Failure::new("no file is open"))
    }

    fn open(&mut self, path: &Path, how: How, span: Span) -> Result<(), Failure> {
        let opened = self.access.open(path, how).context(|| path.display().to_string())?;
        let mut data = RankData::new(span.rank, span.run, span.transfer_bytes);
        if self.spoil && how != How::Read {
            data.spoil();
        }
        let bytes = usize::try_from(span.transfer_bytes).context(|| "too much memory".to_owned())?;
        // Touched, as a program's buffer is after its first use.
        self.work = Some(Work { path: path.to_owned(), opened, span, data, buffer: vec![1; bytes] });
        Ok(())
    }

    fn write(&mut self) -> Result<(), Failure> {
        let work = self.take()?;
        for transfer in 0..work.span.count {
            let offset = work.span.offset(transfer);
            let written = self.access.write(&work.opened, work.data.transfer(transfer), offset);
            written.context(|| format!("{} at {offset}", work.path.display()))?;
        }
        self.work = Some(work);
        Ok(())
    }

    fn read(&mut self) -> Result<(), Failure> {
        let mut work = self.take()?;
        for transfer in 0..work.span.count {
            let offset = work.span.offset(transfer);
            let count = self.access.read(&work.opened, &mut work.buffer, offset);
            let count = count.context(|| format!("{} at {offset}", work.path.display()))?;
            if count != work.buffer.len() {
                return Err(Failure::new(format!("{} ends at {offset}", work.path.display())));
            }
        }
        self.work = Some(work);
        Ok(())
    }

    /// Reads the span once more and compares.
    fn verify(&mut self) -> Result<Report, Failure> {
        let mut work = self.take()?;
        let mut report = Report::default();
        let Span { rank, run, processes, .. } = work.span;
        for transfer in 0..work.span.count {
            let offset = work.span.offset(transfer);
            let count = self.access.read(&work.opened, &mut work.buffer, offset);
            let count = count.context(|| format!("{} at {offset}", work.path.display()))?;
            let checked = work.data.check(transfer, &work.buffer[..count], processes, run);
            if let Err(Mismatch { at, wrong_bytes, found }) = checked {
                report.wrong_bytes += wrong_bytes;
                if report.wrong_parts.len() < WRONG_PARTS_MAX {
                    let (file, offset) = (work.path.clone(), offset + at);
                    report.wrong_parts.push(WrongPart { file, offset, expected_rank: rank, found });
                }
            }
        }
        self.work = Some(work);
        Ok(report)
    }

    fn name(&self, action: Action, path: &Path) -> std::io::Result<()> {
        match action {
            Action::Create => self.access.close(self.access.open(path, How::Create)?),
            Action::Stat => self.access.size(path).map(drop),
            Action::Open => self.access.close(self.access.open(path, How::Read)?),
            Action::Unlink => self.access.remove(path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::doors::plan::{Case, Pattern};

    fn worker(spoil: bool) -> Worker {
        Worker { access: Access::System, spoil, work: None }
    }

    #[test]
    fn what_one_process_writes_another_finds_right_and_a_wrong_byte_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let case = Case { pattern: Pattern::Strided, processes: 2, transfer_bytes: 1000 };
        for (spoil, wrong_bytes) in [(false, 0), (true, 1)] {
            let path = folder.path().join(format!("file-{spoil}"));
            let spans = [0, 1].map(|rank| Span::of(&case, 5000, rank, 7));
            let mut writers = [worker(false), worker(spoil)];
            for (writer, (span, how)) in writers.iter_mut().zip(spans.iter().zip([How::Create, How::Write])) {
                let path = path.clone();
                writer.perform(&DoorStep::Open { path, how, span: *span }).unwrap();
                writer.perform(&DoorStep::Write).unwrap();
                writer.perform(&DoorStep::Finish).unwrap();
            }
            let mut reader = worker(false);
            reader.perform(&DoorStep::Open { path, how: How::Read, span: spans[1] }).unwrap();
            reader.perform(&DoorStep::Read).unwrap();
            assert_eq!(reader.perform(&DoorStep::Verify).unwrap().wrong_bytes, wrong_bytes);
            reader.perform(&DoorStep::Close).unwrap();
        }
    }

    #[test]
    fn names_are_made_looked_at_opened_and_removed() {
        let folder = tempfile::tempdir().unwrap();
        let names = |action| DoorStep::Names { action, folder: folder.path().to_owned(), count: 3 };
        let mut worker = worker(false);
        for (action, left) in Action::ALL.into_iter().zip([3, 3, 3, 0]) {
            worker.perform(&names(action)).unwrap();
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), left);
        }
    }
}
