//! Leads the processes of all doors through all rounds, and shows what came out.

use super::args::DoorsArguments;
use super::plan::{Case, Door, Pattern, Plan, Span};
use super::protocol::{Action, DoorStep, How};
use super::result::{self, Figure, Key, Sample};
use super::stage::Stage;
use super::{figure, report, table};
use crate::bench::coordinator::progress;
use crate::bench::crew::Crew;
use crate::bench::protocol::Report;
use crate::bench::result::{Phase, describe_wrong, float};
use crate::bench::table::counted;
use crate::cluster::servers::readable_bytes;
use crate::failure::{Context, Failure, Kind, say};
use crate::sys;
use indicatif::ProgressBar;
use std::fs::File;
use std::path::PathBuf;

/// Measures everything, then shows and writes the results.
pub(crate) fn run(arguments: &DoorsArguments) -> Result<(), Failure> {
    let plan = arguments.plan()?;
    sys::catch_interrupts();
    let mut stage = Stage::start(&plan)?;
    let measured = measure(&plan, &stage);
    let measured = measured.map_err(|failure| match stage.check() {
        Err(ended) if !sys::interrupted() => Failure::new(format!("{ended}\n{failure}")),
        Ok(()) | Err(_) => failure,
    });
    drop(stage);
    let measured = measured?;
    let lines = result::summaries(&measured.samples);
    say(table::render(&plan, &lines));
    if let Some(path) = &plan.json {
        report::write(path, &plan, &measured, &lines)?;
        say(format!("results: {}", path.display()));
    }
    if let Some(path) = &plan.plot {
        figure::draw(path, &plan, &lines)?;
        say(format!("plot: {}", path.display()));
    }
    if measured.wrong_bytes > 0 {
        let wrong = counted(measured.wrong_bytes, "byte");
        return Err(Failure::of(Kind::WrongData, format!("{wrong} wrong")));
    }
    if plan.data {
        let bytes = readable_bytes(measured.bytes);
        say(format!("verified: {bytes}, every byte read by another process and right"));
    }
    Ok(())
}

/// What came out.
#[derive(Default)]
pub(super) struct Measured {
    pub(super) samples: Vec<Sample>,
    /// Bytes that were written and compared.
    pub(super) bytes: u64,
    /// Bytes that were not as written.
    pub(super) wrong_bytes: u64,
}

/// Processes behind a door.
struct Party {
    door: Door,
    crew: Crew,
}

/// The parties, each round beginning with another: what comes first also pays for what is cold.
fn in_turn(count: usize, round: u32) -> impl Iterator<Item = usize> {
    let first = usize::try_from(round).expect("32 bits fit") % count.max(1);
    (0..count).cycle().skip(first).take(count)
}

fn measure(plan: &Plan, stage: &Stage) -> Result<Measured, Failure> {
    let parties = plan.doors.iter().map(|door| Ok(Party { door: *door, crew: stage.crew(plan, *door)? }));
    let mut parties = parties.collect::<Result<Vec<Party>, Failure>>()?;
    let (cases, namers) = (plan.cases(), plan.doors.iter().filter(|door| door.has_names()).count());
    let names = if plan.names > 0 { plan.processes.len() * namers } else { 0 };
    let count =
        u64::from(plan.rounds) * u64::try_from(cases.len() * parties.len() + names).expect("below 2^64");
    let mut session =
        Session { plan, stage, round: 0, run: 0, measured: Measured::default(), bar: progress(count) };
    for round in 0..plan.rounds {
        session.round = round;
        for case in &cases {
            for at in in_turn(parties.len(), round) {
                session.data(&mut parties[at], case)?;
            }
        }
        for processes in plan.processes.iter().filter(|_| plan.names > 0) {
            for at in in_turn(parties.len(), round).filter(|at| plan.doors[*at].has_names()) {
                session.names(&mut parties[at], *processes)?;
            }
        }
    }
    session.bar.finish_and_clear();
    parties.into_iter().try_for_each(|party| party.crew.finish())?;
    Ok(session.measured)
}

/// The measurement under way.
struct Session<'a> {
    plan: &'a Plan,
    stage: &'a Stage,
    round: u32,
    /// Number of the run with one door: data and names of files depend on it.
    run: u32,
    measured: Measured,
    bar: ProgressBar,
}

/// One run with data.
struct DataRun<'a> {
    case: &'a Case,
    /// Which bytes are whose.
    spans: Vec<Span>,
    /// The file of each process.
    paths: Vec<PathBuf>,
}

impl DataRun<'_> {
    fn processes(&self) -> usize {
        self.spans.len()
    }

    /// Whether `rank` is the one who makes its file.
    fn is_first(&self, rank: usize) -> bool {
        rank == 0 || self.case.pattern == Pattern::Nn
    }

    /// All processes do the same.
    fn all(&self, step: &DoorStep) -> Vec<(usize, DoorStep)> {
        (0..self.processes()).map(|member| (member, step.clone())).collect()
    }

    /// Who reads, and whose data: each process those of the next, and one alone those of the first.
    fn readers(&self) -> Vec<(usize, usize)> {
        match self.processes() {
            1 => vec![(1, 0)],
            count => (0..count).map(|rank| (rank, (rank + 1) % count)).collect(),
        }
    }

    fn by_readers(&self, step: &DoorStep) -> Vec<(usize, DoorStep)> {
        self.readers().iter().map(|(member, _)| (*member, step.clone())).collect()
    }
}

impl Session<'_> {
    /// Notes what a phase gave.
    fn note(&mut self, key: Key, door: Door, amount: u64, seconds: f64) {
        let per_second = if seconds > 0.0 { float(amount) / seconds } else { 0.0 };
        self.measured.samples.push(Sample { key, door: door.name(), round: self.round, per_second });
    }

    fn begin(&mut self, door: Door, what: &str) -> String {
        self.run += 1;
        self.bar.set_message(format!("{} {what} round {}", door.name(), self.round + 1));
        format!("run-{}", self.run)
    }

    /// Writes, reads and compares in one case through one door.
    fn data(&mut self, party: &mut Party, case: &Case) -> Result<(), Failure> {
        let name = self.begin(party.door, &case.label());
        let path = |rank: u32| {
            let own = if case.pattern == Pattern::Nn { rank } else { 0 };
            self.stage.folder(party.door).join(format!("{name}.{own}"))
        };
        let run = DataRun {
            case,
            spans: (0..case.processes)
                .map(|rank| Span::of(case, self.plan.per_process_bytes, rank, self.run))
                .collect(),
            paths: (0..case.processes).map(path).collect(),
        };
        self.open(party, &run)?;
        self.stage.settle()?;
        let bytes = run.spans.iter().map(Span::bytes).sum::<u64>();
        let crew = &mut party.crew;
        let write = Phase::of(&crew.step(&run.all(&DoorStep::Write))?).seconds;
        let finish = Phase::of(&crew.step(&run.all(&DoorStep::Finish))?).seconds;
        check_kind(self.stage, party.door, &run)?;
        let (read, reread, verified) = read(crew, &run)?;
        let remove = |rank: usize| (rank, DoorStep::Remove { path: run.paths[rank].clone() });
        let first = (0..run.processes()).filter(|rank| run.is_first(*rank));
        crew.step(&first.map(remove).collect::<Vec<_>>())?;
        for (figure, seconds) in Figure::DATA.into_iter().zip([write, write + finish, read, reread]) {
            self.note(Key::of(figure, case), party.door, bytes, seconds);
        }
        self.take_in(party.door, case, bytes, &verified);
        self.bar.inc(1);
        Ok(())
    }

    /// Makes the files and lets the processes open them.
    fn open(&self, party: &mut Party, run: &DataRun<'_>) -> Result<(), Failure> {
        let ordinary = party.door == Door::Passthrough;
        if ordinary {
            for path in run.paths.iter().enumerate().filter(|(rank, _)| run.is_first(*rank)).map(|(_, p)| p) {
                let name = path.file_name().unwrap_or_default();
                let path = self.stage.namespace_folder(party.door).join(name);
                File::create_new(&path).context(|| format!("cannot create {}", path.display()))?;
            }
        }
        let open = |rank: usize| {
            let how = if ordinary || !run.is_first(rank) { How::Write } else { How::Create };
            (rank, DoorStep::Open { path: run.paths[rank].clone(), how, span: run.spans[rank] })
        };
        let (first, rest): (Vec<usize>, Vec<usize>) =
            (0..run.processes()).partition(|rank| run.is_first(*rank));
        for ranks in [first, rest] {
            party.crew.step(&ranks.into_iter().map(open).collect::<Vec<_>>())?;
        }
        Ok(())
    }

    fn take_in(&mut self, door: Door, case: &Case, bytes: u64, verified: &[Report]) {
        self.measured.bytes += bytes;
        for report in verified {
            self.measured.wrong_bytes += report.wrong_bytes;
            for part in &report.wrong_parts {
                let text = describe_wrong(part);
                self.bar.suspend(|| eprintln!("WRONG ({} {}): {text}", door.name(), case.label()));
            }
        }
    }

    /// Makes names, looks at them, opens and removes them, each process in a directory of its own.
    fn names(&mut self, party: &mut Party, processes: u32) -> Result<(), Failure> {
        let name = self.begin(party.door, &format!("names x{processes}"));
        let count = self.plan.names;
        let folder = |rank: u32| format!("{name}.{rank}");
        let place = self.stage.namespace_folder(party.door);
        for rank in 0..processes {
            let path = place.join(folder(rank));
            std::fs::create_dir(&path).context(|| format!("cannot create {}", path.display()))?;
        }
        self.stage.settle()?;
        for (figure, action) in Figure::NAMES.into_iter().zip(Action::ALL) {
            let step = |rank: u32| {
                let folder = self.stage.folder(party.door).join(folder(rank));
                (usize::try_from(rank).expect("32 bits fit"), DoorStep::Names { action, folder, count })
            };
            let steps: Vec<_> = (0..processes).map(step).collect();
            let done = party.crew.step(&steps)?;
            let seconds = Phase::of(&done).seconds;
            self.note(Key::of_names(figure, processes), party.door, count * u64::from(processes), seconds);
        }
        for rank in 0..processes {
            let path = place.join(folder(rank));
            // Fails if a name is left.
            std::fs::remove_dir(&path).context(|| format!("cannot remove {}", path.display()))?;
        }
        self.bar.inc(1);
        Ok(())
    }
}

/// Whether the files are what the door stands for: behind those of ccPFS there is a stub, behind the others the data.
fn check_kind(stage: &Stage, door: Door, run: &DataRun<'_>) -> Result<(), Failure> {
    let ends = run.spans.iter().map(|span| span.offset(span.count - 1) + span.transfer_bytes);
    let bytes = ends.max().unwrap_or(0);
    let wanted = match door {
        Door::Capi | Door::Preload | Door::Mount => false,
        Door::Passthrough | Door::Plain => true,
    };
    for path in &run.paths {
        let path = stage.namespace_folder(door).join(path.file_name().unwrap_or_default());
        let found = std::fs::symlink_metadata(&path).context(|| path.display().to_string())?;
        if (found.len() == bytes) != wanted {
            let (path, door) = (path.display(), door.name());
            return Err(Failure::new(format!(
                "{path} is not what '{door}' is to measure: {} bytes",
                found.len()
            )));
        }
    }
    Ok(())
}

/// Other processes read everything twice, and once more to compare.
fn read(crew: &mut Crew, run: &DataRun<'_>) -> Result<(f64, f64, Vec<Report>), Failure> {
    let open = |(member, of): (usize, usize)| {
        let (path, span) = (run.paths[of].clone(), run.spans[of]);
        (member, DoorStep::Open { path, how: How::Read, span })
    };
    crew.step(&run.readers().into_iter().map(open).collect::<Vec<_>>())?;
    let first = Phase::of(&crew.step(&run.by_readers(&DoorStep::Read))?).seconds;
    let again = Phase::of(&crew.step(&run.by_readers(&DoorStep::Read))?).seconds;
    let verified = crew.step(&run.by_readers(&DoorStep::Verify))?;
    crew.step(&run.by_readers(&DoorStep::Close))?;
    Ok((first, again, verified))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_round_begins_with_another_door_and_leaves_none_out() {
        assert_eq!(in_turn(3, 0).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(in_turn(3, 5).collect::<Vec<_>>(), [2, 0, 1]);
    }

    #[test]
    fn nobody_reads_what_it_wrote_itself() {
        for processes in [1, 2, 4] {
            let case = Case { pattern: Pattern::Nn, processes, transfer_bytes: 1 };
            let spans: Vec<Span> = (0..processes).map(|rank| Span::of(&case, 1, rank, 0)).collect();
            let run = DataRun { case: &case, paths: vec![PathBuf::new(); spans.len()], spans };
            let readers = run.readers();
            assert!(readers.iter().all(|(member, of)| member != of));
            assert_eq!(readers.len(), run.processes());
        }
    }
}
