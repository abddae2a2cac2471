//! The figures of the paper (and one beyond it), each as a list of runs and what is made of their outcomes.

pub mod applications;
mod collective004;
mod conflict;
pub mod explain;
pub mod hardware;
mod ior;
pub mod lock_rules;
pub mod lock_world;
mod locks001;
pub mod noncontiguous;
pub mod paper;
pub mod program;
mod programs001;
pub mod result;
pub mod run;
mod scale;
pub mod sensitivity;
mod tiles;
mod vpic;

pub use crate::taking;
use result::{Figure, Measured};
use run::{Outcomes, Spec, Step, run_all};
use sensitivity::Sensitivity;

/// How large the runs are: which part of the paper's writes each client makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// One of so many; 1 is the paper's size.
    pub part: u64,
}

impl Size {
    /// As the paper says, where not said otherwise beside the figure.
    pub const FULL: Size = Size { part: 1 };
    /// Seconds instead of minutes.
    pub const QUICK: Size = Size { part: 32 };

    /// The same, or one of `part` if that is smaller: for what is too expensive otherwise.
    const fn at_least(self, part: u64) -> Size {
        Size { part: if self.part > part { self.part } else { part } }
    }

    /// In words, for the page.
    #[must_use]
    pub fn words(self) -> String {
        if self.part == 1 { "all".to_owned() } else { format!("1/{}", self.part) }
    }

    /// That part of a number, but at least so much.
    fn of(self, full: u64, least: u64) -> u64 {
        (full / self.part).max(least.min(full))
    }
}

/// The part of a figure whose runs differ in it; its text says how.
const VARIES: u64 = 0;

/// One figure.
pub struct Entry {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is, in a line.
    pub what: &'static str,
    /// The largest part of the paper's writes that its clients make, one of so many: more would take too long. 0: it differs from
    /// run to run, and the text says how.
    pub part: u64,
    specs: fn(Size) -> Vec<Spec>,
    figure: fn(Size, &Outcomes) -> Figure,
}

impl Entry {
    /// The runs that it is made of.
    #[must_use]
    pub fn runs(&self, size: Size) -> Vec<Spec> {
        (self.specs)(self.size(size))
    }

    fn finish(&self, size: Size, outcomes: &Outcomes) -> Figure {
        let size = self.size(size);
        let mut figure = (self.figure)(size, outcomes);
        figure.part = size.part;
        match (self.part, size.part) {
            (VARIES, _) => {}
            (_, 1) => figure.text.push("These runs make all of the writes.".to_owned()),
            _ => figure.text.push(format!("These runs make {} of the writes.", size.words())),
        }
        figure
    }

    /// At which size it runs.
    fn size(&self, size: Size) -> Size {
        size.at_least(self.part)
    }
}

/// All figures, in the order of the page.
pub const FIGURES: [Entry; 18] = [
    Entry {
        name: "4",
        what: "N-N, N-1 segmented and N-1 strided under a traditional lock manager",
        part: 1,
        specs: ior::specs4,
        figure: ior::figure4,
    },
    Entry {
        name: "17",
        what: "time of conflicting writes one after the other, in parts",
        part: 1,
        specs: conflict::specs17,
        figure: conflict::figure17,
    },
    Entry {
        name: "18",
        what: "throughput of parallel conflicting writes, early revocation on and off",
        part: 1,
        specs: conflict::specs18,
        figure: conflict::figure18,
    },
    Entry {
        name: "19",
        what: "upgrading and downgrading",
        part: 1,
        specs: conflict::specs19,
        figure: conflict::figure19,
    },
    Entry {
        name: "table3",
        what: "N-1 segmented with one stripe",
        part: 1,
        specs: ior::specs_table3,
        figure: ior::table3,
    },
    Entry {
        name: "20",
        what: "N-1 strided with one stripe",
        part: 1,
        specs: ior::specs20,
        figure: ior::figure20,
    },
    Entry {
        name: "21",
        what: "N-1 strided with 4 and 8 stripes, 96 clients: bandwidth",
        part: VARIES,
        specs: ior::specs21,
        figure: ior::figure21,
    },
    Entry {
        name: "22",
        what: "N-1 strided with 4 and 8 stripes, 96 clients: total time",
        part: VARIES,
        specs: ior::specs21,
        figure: ior::figure22,
    },
    Entry {
        name: "23",
        what: "Tile-IO, 96 clients, 1 to 16 stripes",
        part: tiles::PART,
        specs: tiles::specs,
        figure: tiles::figure,
    },
    Entry {
        name: "24",
        what: "VPIC-IO, 1,280 processes: bandwidth",
        part: vpic::PART,
        specs: vpic::specs,
        figure: vpic::figure24,
    },
    Entry {
        name: "25",
        what: "VPIC-IO, 1,280 processes: time",
        part: vpic::PART,
        specs: vpic::specs,
        figure: vpic::figure25,
    },
    Entry {
        name: "scale",
        what: "beyond the paper: N-1 strided with 16 to 10,000 clients and 1 to 256 stripes",
        part: scale::PART,
        specs: scale::specs,
        figure: scale::figure,
    },
    Entry {
        name: "001-locks",
        what: "paper 001: locks of one byte, acquired and released without contention",
        part: 1,
        specs: locks001::specs,
        figure: locks001::figure4,
    },
    Entry {
        name: "001-overlap",
        what: "paper 001: the same with clients that share 0 to 100 % of them",
        part: 1,
        specs: locks001::specs,
        figure: locks001::figure6,
    },
    Entry {
        name: "001-s3d",
        what: "paper 001: S3D's checkpoint, atomic by all kinds of locks and protocols, and without",
        part: 1,
        specs: programs001::specs_s3d,
        figure: programs001::s3d,
    },
    Entry {
        name: "001-s3asim",
        what: "paper 001: S3aSim's results, atomic by lists and single locks, and without",
        part: 1,
        specs: programs001::specs_s3asim,
        figure: programs001::s3asim,
    },
    Entry {
        name: "004-collective",
        what: "paper 004: collective writes of a shared file, by how their locks are asked for",
        part: 1,
        specs: collective004::specs_collective,
        figure: collective004::collective,
    },
    Entry {
        name: "004-wrf",
        what: "paper 004: the files of a weather forecast, 743 s and 150 s",
        part: collective004::WRF_PART,
        specs: collective004::specs_wrf,
        figure: collective004::wrf,
    },
];

/// A figure by name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Entry> {
    FIGURES.iter().find(|entry| entry.name == name)
}

fn measured(claim: &'static str, ours: f64) -> Measured {
    debug_assert!(paper::find(claim).is_some(), "{claim} is one of the paper's");
    Measured { claim, ours, part: 0 }
}

/// What a page is made of.
#[derive(Clone, Debug)]
pub struct Report {
    /// The figures.
    pub figures: Vec<Figure>,
    /// What halving and doubling each parameter does, if it was asked for.
    pub sensitivity: Option<Sensitivity>,
    /// Why some numbers are not the paper's, with the runs that show it.
    pub explanations: Vec<explain::Explanation>,
    /// Size of the runs.
    pub size: Size,
    /// Events simulated.
    pub events: u64,
    /// Seconds of processor time that the simulation took, summed over threads.
    pub simulation_s: f64,
    /// Every run, with what it was and what came out.
    pub outcomes: Outcomes,
}

/// Simulates one figure.
///
/// # Errors
///
/// The first run that fails, with what it was.
pub fn simulate_one(
    entry: &Entry,
    size: Size,
    threads: usize,
    progress: &(dyn Fn(Step<'_>) + Sync),
) -> Result<Figure, String> {
    let outcomes = run_all(&entry.runs(size), &Outcomes::default(), threads, progress)?;
    Ok(entry.finish(size, &outcomes))
}

/// Simulates all figures, the sensitivity of the headline ratios, and the evidence of the explanations; runs that are `known`
/// are taken as they are.
///
/// # Errors
///
/// The first run that fails, with what it was.
pub fn simulate_all(
    size: Size,
    known: &Outcomes,
    threads: usize,
    progress: &(dyn Fn(Step<'_>) + Sync),
) -> Result<Report, String> {
    let mut specs: Vec<Spec> = FIGURES.iter().flat_map(|entry| entry.runs(size)).collect();
    specs.extend(sensitivity::specs(size));
    specs.extend(explain::specs(size));
    let outcomes = run_all(&specs, known, threads, progress)?;
    let (events, simulation_s) = outcomes.cost();
    Ok(Report {
        figures: FIGURES.iter().map(|entry| entry.finish(size, &outcomes)).collect(),
        sensitivity: Some(sensitivity::table(size, &outcomes)),
        explanations: explain::explanations(size, &outcomes),
        size,
        events,
        simulation_s,
        outcomes,
    })
}
