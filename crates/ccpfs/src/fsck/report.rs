//! What a check has found, for people and for programs, and what the exit status says of it.

use crate::failure::{Failure, Kind, say};
use ccpfs_types::FileId;
use indicatif::ProgressBar;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Everything wrong has been mended.
const EXIT_MENDED: u8 = 1;
/// Something wrong is left.
const EXIT_LEFT: u8 = 4;
/// Something could not be looked at or done.
pub(crate) const EXIT_OPERATIONAL: u8 = 8;

/// What kind of trouble.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Trouble {
    /// Data that no stub names.
    Orphan,
    /// A stub that cannot be read.
    Damaged,
    /// Two files with the same data.
    Shared,
    /// A file that says more than the servers have.
    Incomplete,
    /// A file that says something else than the servers.
    Contradiction,
    /// A file whose last writer is gone.
    Unsealed,
    /// Data of a stripe that the file does not have.
    Beyond,
    /// Data on the wrong server.
    Misplaced,
    /// A note about a removed file that says nothing any more.
    Note,
}

impl Trouble {
    const fn name(self) -> &'static str {
        match self {
            Trouble::Orphan => "orphan",
            Trouble::Damaged => "damaged",
            Trouble::Shared => "shared",
            Trouble::Incomplete => "incomplete",
            Trouble::Contradiction => "contradiction",
            Trouble::Unsealed => "unsealed",
            Trouble::Beyond => "beyond",
            Trouble::Misplaced => "misplaced",
            Trouble::Note => "note",
        }
    }
}

/// What has been done about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", content = "detail", rename_all = "lowercase")]
pub(crate) enum Outcome {
    /// It is as it should be; how.
    Mended(String),
    /// Nothing; what could be.
    Left(String),
    /// It was tried.
    Failed(String),
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    pub(crate) trouble: Trouble,
    #[serde(serialize_with = "as_text", skip_serializing_if = "Option::is_none")]
    pub(crate) file: Option<FileId>,
    pub(crate) paths: Vec<PathBuf>,
    /// Bytes on the servers, where that is what counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) bytes: Option<u64>,
    /// In words.
    pub(crate) what: String,
    #[serde(flatten)]
    pub(crate) outcome: Outcome,
}

#[allow(clippy::ref_option, reason = "called by derived code")]
fn as_text<S: serde::Serializer>(file: &Option<FileId>, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&file.map(|file| file.to_string()).unwrap_or_default())
}

/// Something that was not looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Unseen {
    what: String,
    why: String,
}

/// How much was looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Counts {
    /// Files of ccPFS.
    pub(crate) files: u64,
    /// Directories.
    pub(crate) directories: u64,
    /// Stripes on servers.
    pub(crate) stripes: u64,
    /// Bytes of space that these take.
    pub(crate) stored_bytes: u64,
}

/// Collects what is found.
pub(crate) struct Report {
    json: bool,
    progress: ProgressBar,
    findings: Vec<Finding>,
    remarks: Vec<String>,
    unseen: Vec<Unseen>,
    pub(crate) counts: Counts,
}

impl Report {
    pub(crate) fn new(json: bool) -> Report {
        // Hides itself where there is no terminal.
        let progress = if json { ProgressBar::hidden() } else { ProgressBar::new_spinner() };
        progress.enable_steady_tick(Duration::from_millis(200));
        Report {
            json,
            progress,
            findings: Vec::new(),
            remarks: Vec::new(),
            unseen: Vec::new(),
            counts: Counts::default(),
        }
    }

    /// What is being done, for a terminal.
    pub(crate) fn step(&self, what: impl Into<String>) {
        self.progress.set_message(what.into());
    }

    /// Something is wrong.
    pub(crate) fn found(&mut self, finding: Finding) {
        self.print(&describe(&finding));
        self.findings.push(finding);
    }

    /// Something is worth knowing and not wrong.
    pub(crate) fn remark(&mut self, text: impl Into<String>) {
        let text = text.into();
        self.print(&text);
        self.remarks.push(text);
    }

    /// Something could not be looked at.
    pub(crate) fn unseen(&mut self, what: impl Into<String>, why: impl ToString) {
        let unseen = Unseen { what: what.into(), why: why.to_string() };
        self.print(&format!("not looked at: {}: {}", unseen.what, unseen.why));
        self.unseen.push(unseen);
    }

    /// Whether everything could be looked at so far.
    pub(crate) fn has_seen_all(&self) -> bool {
        self.unseen.is_empty()
    }

    fn print(&self, text: &str) {
        if !self.json {
            self.progress.suspend(|| say(text));
        }
    }

    /// Prints the rest. Fails with the exit status if anything was wrong.
    pub(crate) fn finish(self) -> Result<(), Failure> {
        self.progress.finish_and_clear();
        let code = exit_code(&self.findings, self.has_seen_all());
        if self.json {
            let all = serde_json::json!({
                "counts": self.counts,
                "findings": self.findings,
                "remarks": self.remarks,
                "not_looked_at": self.unseen,
                "exit_status": code,
            });
            say(serde_json::to_string_pretty(&all).expect("plain values"));
        } else {
            let Counts { files, directories, stripes, stored_bytes } = self.counts;
            let space = size(stored_bytes);
            say(format!(
                "{files} files in {directories} directories, {stripes} stripes ({space}) on servers"
            ));
        }
        if code == 0 {
            return Ok(());
        }
        let mended = self.findings.iter().filter(|f| matches!(f.outcome, Outcome::Mended(_))).count();
        let (all, unseen) = (self.findings.len(), self.unseen.len());
        Err(Failure::of(
            Kind::Fsck(code),
            format!("{all} found, {mended} mended; {unseen} not looked at (exit status {code})"),
        ))
    }
}

fn exit_code(findings: &[Finding], seen_all: bool) -> u8 {
    let mut code = if seen_all { 0 } else { EXIT_OPERATIONAL };
    for finding in findings {
        code |= match finding.outcome {
            Outcome::Mended(_) => EXIT_MENDED,
            Outcome::Left(_) => EXIT_LEFT,
            Outcome::Failed(_) => EXIT_LEFT | EXIT_OPERATIONAL,
        };
    }
    code
}

fn describe(finding: &Finding) -> String {
    let paths: Vec<String> = finding.paths.iter().map(|path| path.display().to_string()).collect();
    let subject = match (&finding.file, paths.is_empty()) {
        (_, false) => paths.join(", "),
        (Some(file), true) => file.to_string(),
        (None, true) => String::new(),
    };
    let outcome = match &finding.outcome {
        Outcome::Mended(how) => format!("mended: {how}"),
        Outcome::Left(advice) => format!("left: {advice}"),
        Outcome::Failed(why) => format!("failed: {why}"),
    };
    format!("{}: {subject}: {}\n    {outcome}", finding.trouble.name(), finding.what)
}

/// A size for people, and exactly.
pub(crate) fn size(bytes: u64) -> String {
    if bytes < 10_000 {
        return format!("{bytes} bytes");
    }
    format!("{} ({bytes} bytes)", crate::cluster::servers::readable_bytes(bytes))
}

/// A time for people: UTC, to the second.
pub(crate) fn time(ns: i64) -> String {
    if ns <= 0 {
        return String::from("never");
    }
    let seconds = ns / 1_000_000_000;
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    // Years begin in March here, so that leap days come last.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

/// A path for people: below the namespace, as short as it is.
pub(crate) fn below(path: &Path, namespace: &Path) -> String {
    path.strip_prefix(namespace).unwrap_or(path).display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        assert_eq!(time(0), "never");
        assert_eq!(time(951_782_400_000_000_000), "2000-02-29 00:00:00 UTC");
        assert_eq!(time(1_767_225_599_000_000_000), "2025-12-31 23:59:59 UTC");
    }

    #[test]
    fn the_exit_status_is_a_sum() {
        let finding = |outcome| Finding {
            trouble: Trouble::Note,
            file: None,
            paths: Vec::new(),
            bytes: None,
            what: String::new(),
            outcome,
        };
        let (mended, left) = (Outcome::Mended(String::new()), Outcome::Left(String::new()));
        assert_eq!(exit_code(&[], true), 0);
        assert_eq!(exit_code(&[finding(mended.clone())], true), 1);
        assert_eq!(exit_code(&[finding(mended), finding(left)], true), 5);
        assert_eq!(exit_code(&[], false), 8);
        assert_eq!(exit_code(&[finding(Outcome::Failed(String::new()))], true), 12);
    }
}
