//! `ccpfs sim figure` and `ccpfs sim figures`.

use super::{all_processors, progress};
use crate::failure::{Context, Failure, say};
use ccpfs_sim::figures::result::{Figure, Table, number};
use ccpfs_sim::figures::run::{Outcomes, Step};
use ccpfs_sim::figures::{self, Entry, FIGURES, Report, Size};
use ccpfs_sim::page::{Comparison, comparisons, page, with_unit};
use ccpfs_sim::plot::draw;
use indicatif::ProgressBar;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Options of `ccpfs sim figure`.
#[derive(Debug, clap::Args)]
pub(crate) struct FigureArguments {
    /// The figure: 4, 17, 18, 19, 20, 21, 22, 23, 24, 25, table3 or scale (paper 000), 001-locks, 001-overlap, 001-s3d,
    /// 001-s3asim, 004-collective or 004-wrf (earlier papers).
    #[arg(value_name = "FIGURE", value_parser = figure_named)]
    figure: String,
    /// Small runs, as '--part 32': seconds. Ratios shift, because less is cached and flushed.
    #[arg(long, conflicts_with = "part")]
    quick: bool,
    /// Clients make one of N of the paper's writes.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=256))]
    part: u64,
    /// Threads that simulate, each a run of its own (default: all processors).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
    /// Write tables, series and numbers to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Draw the plots into this SVG file; a second one gets '-2' before its ending.
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

/// Options of `ccpfs sim figures`.
#[derive(Debug, clap::Args)]
pub(crate) struct FiguresArguments {
    /// The directory; it is created if it is not there.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Small runs, as '--part 32': seconds. Ratios shift, because less is cached and flushed.
    #[arg(long, conflicts_with = "part")]
    quick: bool,
    /// Clients make one of N of the paper's writes.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=256))]
    part: u64,
    /// Threads that simulate, each a run of its own (default: all processors).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
    /// Take runs from this file, the 'runs.json' of an earlier page of this same program, and simulate only what is not there.
    /// It is written while the runs go on: an interrupted page goes on with '--runs DIR/runs.json'.
    #[arg(long, value_name = "FILE")]
    runs: Option<PathBuf>,
}

/// Accepts the names of figures.
fn figure_named(text: &str) -> Result<String, String> {
    match figures::find(text) {
        Some(_) => Ok(text.to_owned()),
        None => {
            let names: Vec<String> =
                FIGURES.iter().map(|entry| format!("{} ({})", entry.name, entry.what)).collect();
            Err(format!("there is no figure '{text}'; there are {}", names.join("; ")))
        }
    }
}

const fn size(quick: bool, part: u64) -> Size {
    if quick { Size::QUICK } else { Size { part } }
}

/// How many threads, and something that shows how far they are.
fn begin(threads: Option<u16>, what: &str) -> (usize, ProgressBar) {
    (threads.map_or_else(all_processors, usize::from), progress(0, what))
}

fn show(bar: &ProgressBar, step: Step<'_>) {
    bar.set_length(step.of as u64);
    bar.set_position(step.done as u64);
}

/// A figure with the paper's numbers beside ours, as it is written to a file.
#[derive(Serialize)]
struct Document<'a> {
    figure: &'a Figure,
    comparisons: Vec<Line>,
}

#[derive(Serialize)]
struct Line {
    claim: &'static str,
    what: &'static str,
    paper: f64,
    ours: f64,
    ratio: f64,
}

fn json(figure: &Figure) -> Result<String, Failure> {
    let line = |one: Comparison| Line {
        claim: one.claim.name,
        what: one.claim.what,
        paper: one.claim.paper,
        ours: one.ours,
        ratio: one.ratio(),
    };
    let lines = comparisons(std::slice::from_ref(figure)).into_iter().map(line).collect();
    let text = serde_json::to_string_pretty(&Document { figure, comparisons: lines });
    text.context(|| format!("cannot write figure {} as JSON", figure.name)).map(|text| text + "\n")
}

/// Writes a file; directories that are missing are created.
fn write(path: &Path, text: &str) -> Result<(), Failure> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).context(|| format!("cannot create {}", parent.display()))?;
    }
    std::fs::write(path, text).context(|| format!("cannot write {}", path.display()))
}

/// The file of plot number `at`: the name itself, then `name-2`, `name-3`.
fn numbered(path: &Path, at: usize) -> PathBuf {
    if at == 0 {
        return path.to_owned();
    }
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let ending = path.extension().map(|ending| format!(".{}", ending.to_string_lossy())).unwrap_or_default();
    path.with_file_name(format!("{stem}-{}{ending}", at + 1))
}

/// The series of a figure's plots, as tables.
fn series(figure: &Figure) -> impl Iterator<Item = Table> + '_ {
    figure.plots.iter().map(|plot| {
        let mut columns = vec![plot.x_label.clone()];
        columns.extend(plot.series.iter().map(|series| series.name.clone()));
        let mut table = Table::new(&format!("{} ({})", plot.title, plot.y_label), &columns);
        for (at, category) in plot.categories.iter().enumerate() {
            let values = plot.series.iter().map(|series| series.values[at]);
            let mut row = vec![category.replace('\n', " ")];
            row.extend(values.map(|value| value.map_or_else(|| "-".to_owned(), number)));
            table.row(row);
        }
        table
    })
}

/// The paper's numbers beside ours.
fn compared(figures: &[Figure]) -> Option<Table> {
    let mut table = Table::new("The paper and ours", &["number", "paper", "ours", "ratio", "writes"]);
    for one in comparisons(figures) {
        let unit = one.claim.unit;
        table.row(vec![
            one.claim.what.to_owned(),
            with_unit(one.claim.paper, unit),
            with_unit(one.ours, unit),
            number(one.ratio()),
            one.size.words(),
        ]);
    }
    (!table.rows.is_empty()).then_some(table)
}

/// The runs of an earlier page.
fn runs(path: &Path) -> Result<Outcomes, Failure> {
    let text = std::fs::read_to_string(path).context(|| format!("--runs: cannot read {}", path.display()))?;
    serde_json::from_str(&text)
        .context(|| format!("--runs: {} is not what this program has written", path.display()))
}

/// The file of a page's runs. What is done is written from time to time, so that an interrupted page can be gone on with.
struct RunsFile {
    path: PathBuf,
    written: Mutex<Instant>,
}

/// How often the file of the runs is written while they go on.
const RUNS_EVERY: Duration = Duration::from_secs(10);

impl RunsFile {
    fn new(out: &Path) -> RunsFile {
        RunsFile { path: out.join("runs.json"), written: Mutex::new(Instant::now()) }
    }

    /// Whole or not at all: a name is never that of half a file.
    fn write(&self, found: &Outcomes) -> Result<(), Failure> {
        let all =
            serde_json::to_string_pretty(found).context(|| "cannot write the runs as JSON".to_owned())?;
        let new = self.path.with_extension("json.new");
        write(&new, &(all + "\n"))?;
        std::fs::rename(&new, &self.path).context(|| format!("cannot write {}", self.path.display()))
    }

    /// Some more are there. What fails here is tried again, and told, at the end.
    fn note(&self, found: &Outcomes) {
        let mut written = self.written.lock().expect("no code panics under this lock");
        if written.elapsed() >= RUNS_EVERY {
            if let Err(failure) = self.write(found) {
                tracing::warn!(%failure, "the runs are not saved meanwhile");
            }
            *written = Instant::now();
        }
    }
}

fn print(figure: &Figure) {
    say(&figure.title);
    figure.text.iter().for_each(|paragraph| say(format!("\n{paragraph}")));
    for table in
        series(figure).chain(figure.tables.iter().cloned()).chain(compared(std::slice::from_ref(figure)))
    {
        say(format!("\n{}", table.to_text().trim_end()));
    }
}

/// Simulates one figure and prints it.
pub(crate) fn figure(arguments: &FigureArguments) -> Result<(), Failure> {
    let entry: &Entry = figures::find(&arguments.figure).expect("clap has looked it up");
    let (threads, bar) = begin(arguments.threads, &format!("figure {}", entry.name));
    let simulated = figures::simulate_one(entry, size(arguments.quick, arguments.part), threads, &|step| {
        show(&bar, step)
    });
    bar.finish_and_clear();
    let figure = simulated.map_err(|error| Failure::new(format!("figure {}: {error}", entry.name)))?;
    print(&figure);
    if let Some(path) = &arguments.json {
        write(path, &json(&figure)?)?;
    }
    if let Some(path) = &arguments.plot {
        for (at, plot) in figure.plots.iter().enumerate() {
            write(&numbered(path, at), &draw(plot))?;
        }
    }
    Ok(())
}

/// Simulates all figures and writes the page.
pub(crate) fn figures(arguments: &FiguresArguments) -> Result<(), Failure> {
    let out = &arguments.out;
    std::fs::create_dir_all(out).context(|| format!("--out: cannot create {}", out.display()))?;
    let (threads, bar) = begin(arguments.threads, "all figures");
    let known = arguments.runs.as_deref().map_or_else(|| Ok(Outcomes::default()), runs)?;
    let size = size(arguments.quick, arguments.part);
    let file = RunsFile::new(out);
    let simulated = figures::simulate_all(size, &known, threads, &|step| {
        show(&bar, step);
        file.note(step.found);
    });
    bar.finish_and_clear();
    let report: Report = simulated.map_err(|error| Failure::new(format!("figures: {error}")))?;
    for figure in &report.figures {
        write(&out.join(format!("{}.json", figure.name)), &json(figure)?)?;
        for (at, plot) in figure.plots.iter().enumerate() {
            write(&numbered(&out.join(format!("{}.svg", figure.name)), at), &draw(plot))?;
        }
    }
    let index = out.join("index.html");
    write(&index, &page(&report))?;
    file.write(&report.outcomes)?;
    if let Some(table) = compared(&report.figures) {
        write(&out.join("table.txt"), &table.to_text())?;
        say(table.to_text().trim_end());
    }
    say(format!("the page is {}", index.display()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_known_by_name_and_others_are_refused_with_all_names() {
        assert_eq!(figure_named("table3"), Ok("table3".to_owned()));
        let error = figure_named("26").unwrap_err();
        assert!(error.contains("'26'") && error.contains("scale (beyond the paper"), "{error}");
    }

    #[test]
    fn plots_beyond_the_first_have_numbers() {
        let names = [0, 1, 2].map(|at| numbered(Path::new("a/b.svg"), at));
        assert_eq!(names, ["a/b.svg", "a/b-2.svg", "a/b-3.svg"].map(PathBuf::from));
    }

    #[test]
    fn a_quick_figure_is_printed_written_and_drawn() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let arguments = FigureArguments {
            figure: "table3".into(),
            quick: true,
            part: 1,
            threads: Some(2),
            json: Some(at("new/3.json")),
            plot: Some(at("3.svg")),
        };
        figure(&arguments).unwrap();
        let text = std::fs::read_to_string(at("new/3.json")).unwrap();
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["comparisons"][0]["paper"], 33.2);
        assert!(value["comparisons"][0]["ours"].as_f64().unwrap() > 10.0);
    }
}
