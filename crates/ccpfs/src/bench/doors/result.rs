//! Results: what was measured, and medians over the rounds.

use super::plan::{Case, Door};
use crate::bench::result::median;
use serde::Serialize;

/// What a number says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Figure {
    /// Bytes per second until the last write returned.
    Write,
    /// Bytes per second with sync and close.
    WriteAndSync,
    /// Bytes per second of another process's first reading.
    Read,
    /// Bytes per second of its second.
    Reread,
    /// Files made, per second.
    Create,
    /// Attributes asked for, per second.
    Stat,
    /// Files opened and closed, per second.
    Open,
    /// Files removed, per second.
    Unlink,
}

impl Figure {
    /// Those of data.
    pub(crate) const DATA: [Figure; 4] = [Figure::Write, Figure::WriteAndSync, Figure::Read, Figure::Reread];
    /// Those of names.
    pub(crate) const NAMES: [Figure; 4] = [Figure::Create, Figure::Stat, Figure::Open, Figure::Unlink];

    /// The name in tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Figure::Write => "write",
            Figure::WriteAndSync => "write+sync",
            Figure::Read => "read",
            Figure::Reread => "reread",
            Figure::Create => "create",
            Figure::Stat => "stat",
            Figure::Open => "open",
            Figure::Unlink => "unlink",
        }
    }
}

/// What is measured of each door: one line of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Key {
    pub(crate) figure: Figure,
    /// `nn` or `strided`; names: `nn`, a directory for each process.
    pub(crate) pattern: &'static str,
    pub(crate) processes: u32,
    /// Bytes of one call; 0 for names.
    pub(crate) transfer_bytes: u64,
}

impl Key {
    /// Of a case with data.
    pub(crate) fn of(figure: Figure, case: &Case) -> Key {
        let Case { pattern, processes, transfer_bytes } = *case;
        Key { figure, pattern: pattern.name(), processes, transfer_bytes }
    }

    /// Of names.
    pub(crate) fn of_names(figure: Figure, processes: u32) -> Key {
        Key { figure, pattern: "nn", processes, transfer_bytes: 0 }
    }
}

/// One measured number.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Sample {
    #[serde(flatten)]
    pub(crate) key: Key,
    pub(crate) door: &'static str,
    /// From 0.
    pub(crate) round: u32,
    /// Bytes per second, or operations per second.
    pub(crate) per_second: f64,
}

/// One door in one line of a table, over all rounds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Summary {
    #[serde(flatten)]
    pub(crate) key: Key,
    pub(crate) door: &'static str,
    pub(crate) median_per_second: f64,
    pub(crate) min_per_second: f64,
    pub(crate) max_per_second: f64,
}

/// Numbers of two doors, or of one door in two cases.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Ratio {
    pub(crate) what: String,
    #[serde(flatten)]
    pub(crate) key: Key,
    pub(crate) ratio: f64,
}

/// The middle and the ends of what all rounds gave; in the order of measuring.
pub(crate) fn summaries(samples: &[Sample]) -> Vec<Summary> {
    let mut lines: Vec<Summary> = Vec::new();
    for sample in samples {
        if lines.iter().any(|line| line.key == sample.key && line.door == sample.door) {
            continue;
        }
        let same = |other: &&Sample| other.key == sample.key && other.door == sample.door;
        let values: Vec<f64> = samples.iter().filter(same).map(|other| other.per_second).collect();
        lines.push(Summary {
            key: sample.key,
            door: sample.door,
            min_per_second: values.iter().copied().fold(f64::INFINITY, f64::min),
            max_per_second: values.iter().copied().fold(0.0, f64::max),
            median_per_second: median(values),
        });
    }
    lines
}

/// The line of a door.
pub(crate) fn find<'a>(lines: &'a [Summary], key: &Key, door: &str) -> Option<&'a Summary> {
    lines.iter().find(|line| line.key == *key && line.door == door)
}

/// All lines of tables that are about a figure, in the order of measuring.
pub(crate) fn keys(lines: &[Summary], figure: Figure) -> Vec<Key> {
    let mut keys: Vec<Key> = Vec::new();
    for line in lines.iter().filter(|line| line.key.figure == figure) {
        if !keys.contains(&line.key) {
            keys.push(line.key);
        }
    }
    keys
}

/// Which doors are compared with which.
pub(crate) const PAIRS: [(Door, Door); 4] = [
    (Door::Preload, Door::Capi),
    (Door::Mount, Door::Passthrough),
    (Door::Capi, Door::Plain),
    (Door::Mount, Door::Plain),
];

/// A door's middle over another's.
pub(crate) fn ratio_of(lines: &[Summary], key: &Key, (one, other): (Door, Door)) -> Option<f64> {
    let value = |door: Door| find(lines, key, door.name()).map(|line| line.median_per_second);
    let (part, whole) = (value(one)?, value(other)?);
    (whole > 0.0).then(|| part / whole)
}

/// What processes reach with one file over what they reach with a file each.
pub(crate) fn sharing_of(lines: &[Summary], strided: &Key, door: &str) -> Option<f64> {
    let own = find(lines, &Key { pattern: "nn", ..*strided }, door)?.median_per_second;
    let shared = find(lines, strided, door)?.median_per_second;
    (strided.pattern == "strided" && own > 0.0).then(|| shared / own)
}

/// All ratios, for the JSON file.
pub(crate) fn ratios(lines: &[Summary], doors: &[Door]) -> Vec<Ratio> {
    let mut ratios = Vec::new();
    for figure in Figure::DATA.into_iter().chain(Figure::NAMES) {
        for key in keys(lines, figure) {
            for pair in PAIRS {
                let what = format!("{}/{}", pair.0.name(), pair.1.name());
                ratios.extend(ratio_of(lines, &key, pair).map(|ratio| Ratio { what, key, ratio }));
            }
            for door in doors {
                let what = format!("{} strided/nn", door.name());
                let ratio = sharing_of(lines, &key, door.name());
                ratios.extend(ratio.map(|ratio| Ratio { what, key, ratio }));
            }
        }
    }
    ratios
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A sample of a write of 1 MiB.
    pub(crate) fn sample(door: Door, pattern: &'static str, round: u32, per_second: f64) -> Sample {
        let key = Key { figure: Figure::Write, pattern, processes: 4, transfer_bytes: 1 << 20 };
        Sample { key, door: door.name(), round, per_second }
    }

    #[test]
    fn ratios_are_those_of_the_middles() {
        let mut samples = Vec::new();
        for (round, speed) in [(0, 10.0), (1, 90.0), (2, 20.0)] {
            samples.push(sample(Door::Mount, "nn", round, speed));
            samples.push(sample(Door::Passthrough, "nn", round, 2.0 * speed));
            samples.push(sample(Door::Mount, "strided", round, 0.5 * speed));
        }
        let lines = summaries(&samples);
        let first = &lines[0];
        assert_eq!((first.median_per_second, first.min_per_second, first.max_per_second), (20.0, 10.0, 90.0));
        let found = ratios(&lines, &[Door::Mount, Door::Passthrough]);
        let found: Vec<(&str, f64)> = found.iter().map(|line| (line.what.as_str(), line.ratio)).collect();
        assert_eq!(found, [("mount/passthrough", 0.5), ("mount strided/nn", 0.5)]);
    }
}
