//! A process of a measurement, led by a coordinator: its job on the first line of its input, then steps, one answer to each.

use super::protocol::{Event, Order, Report};
use crate::failure::{Context, Failure};
use crate::sys;
use serde::de::DeserializeOwned;
use std::io::{BufRead, Write};

/// Wrong parts that a process describes one by one; all are counted.
pub(crate) const WRONG_PARTS_MAX: usize = 8;

/// Options of the hidden commands that such processes are.
#[derive(Debug, clap::Args)]
pub(crate) struct MemberArguments {
    /// End when this process ends.
    #[arg(long, value_name = "PID")]
    pub(crate) parent: u32,
}

/// What a process can be told to do.
pub(crate) trait Task: DeserializeOwned {
    /// What is being done, for messages.
    fn name(&self) -> &'static str;

    /// Whether it is to end.
    fn is_last(&self) -> bool;
}

/// A process between two steps.
pub(crate) trait Member: Sized {
    /// Who it is, and what it will do.
    type Job: DeserializeOwned;
    /// What it can be told.
    type Step: Task;

    /// What the process is called in messages.
    fn name_of(job: &Self::Job) -> String;

    /// Makes ready.
    ///
    /// # Errors
    /// What keeps it from doing the job.
    fn prepare(job: Self::Job) -> Result<Self, Failure>;

    /// Does a step.
    ///
    /// # Errors
    /// Why it could not be done.
    fn perform(&mut self, step: &Self::Step) -> Result<Report, Failure>;
}

/// Answers steps until there are no more.
pub(crate) fn serve<M: Member>(arguments: &MemberArguments) -> Result<(), Failure> {
    sys::die_with_parent(arguments.parent);
    let mut lines = std::io::stdin().lock().lines();
    let Some(line) = lines.next() else { return Ok(()) };
    let job: M::Job = serde_json::from_str(&line.context(|| "cannot read the job".to_owned())?)
        .context(|| "malformed job".to_owned())?;
    let name = M::name_of(&job);
    let mut member = match M::prepare(job) {
        Ok(member) => member,
        Err(failure) => return tell(&Event::Failed { message: format!("{name}: {failure}") }),
    };
    tell(&Event::Ready)?;
    for line in lines {
        let line = line.context(|| "cannot read a step".to_owned())?;
        let Order::<M::Step> { step, at_ns } =
            serde_json::from_str(&line).context(|| "malformed step".to_owned())?;
        if step.is_last() {
            break;
        }
        sys::wait_until_ns(at_ns);
        tell(&match member.perform(&step) {
            Ok(report) => Event::Done(Box::new(report)),
            Err(failure) => Event::Failed { message: format!("{name} cannot {}: {failure}", step.name()) },
        })?;
    }
    Ok(())
}

/// Answers the coordinator.
fn tell(event: &Event) -> Result<(), Failure> {
    let failed = || "cannot answer the coordinator".to_owned();
    let line = serde_json::to_string(event).context(failed)?;
    let mut output = std::io::stdout().lock();
    writeln!(output, "{line}").and_then(|()| output.flush()).context(failed)
}
