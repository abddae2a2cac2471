//! Every number that the paper's text and tables state about its measurements: where, in which words, and how ours is computed.

use serde::Serialize;

/// What kind of number it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// One speed over another.
    Times,
    /// A part of a whole, of a hundred.
    Percent,
    /// Billions of bytes per second.
    GigabytesPerSecond,
    /// Seconds.
    Seconds,
}

impl Unit {
    /// What is written behind the number.
    #[must_use]
    pub const fn suffix(self) -> &'static str {
        match self {
            Unit::Times => "×",
            Unit::Percent => " %",
            Unit::GigabytesPerSecond => " GB/s",
            Unit::Seconds => " s",
        }
    }
}

/// One number of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Claim {
    /// A short name.
    pub name: &'static str,
    /// The figure of ours that computes it.
    pub figure: &'static str,
    /// Where the paper has it.
    pub place: &'static str,
    /// What it is, in few words.
    pub what: &'static str,
    /// The number.
    pub paper: f64,
    /// Its unit.
    pub unit: Unit,
    /// How ours is computed from runs.
    pub how: &'static str,
    /// An input of the simulation was derived from it, so that it proves less than the others.
    pub is_input: bool,
}

const fn claim(
    name: &'static str,
    figure: &'static str,
    place: &'static str,
    what: &'static str,
    value: (f64, Unit),
    how: &'static str,
) -> Claim {
    let (paper, unit) = value;
    Claim { name, figure, place, what, paper, unit, how, is_input: false }
}

const fn input(claim: Claim) -> Claim {
    Claim { is_input: true, ..claim }
}

use Unit::{GigabytesPerSecond, Percent, Seconds, Times};

/// All of them, in the order of the paper.
pub const CLAIMS: [Claim; 41] = [
    input(claim(
        "17.locking.16k",
        "17",
        "V-B2",
        "PW: share of revocation and cancel in the total time, 16 KiB",
        (67.9, Percent),
        "(revocation + cancel) / total time of the sequential test; the paper gives the range 67.9 to 69.3 % over all sizes",
    )),
    input(claim(
        "17.locking.1024k",
        "17",
        "V-B2",
        "PW: share of revocation and cancel in the total time, 1,024 KiB",
        (69.3, Percent),
        "as above",
    )),
    input(claim(
        "17.cancel.16k",
        "17",
        "V-B2",
        "PW: share of cancel in the locking time, 16 KiB",
        (66.5, Percent),
        "cancel / (revocation + cancel)",
    )),
    input(claim(
        "17.cancel.1024k",
        "17",
        "V-B2",
        "PW: share of cancel in the locking time, 1,024 KiB",
        (95.7, Percent),
        "cancel / (revocation + cancel)",
    )),
    claim(
        "18.noer.64k",
        "18",
        "V-B2",
        "NBW without early revocation over PW, 64 KiB",
        (4.26, Times),
        "writes per second, ratio",
    ),
    claim(
        "18.noer.1024k",
        "18",
        "V-B2",
        "NBW without early revocation over PW, 1,024 KiB",
        (30.29, Times),
        "writes per second, ratio",
    ),
    claim(
        "18.er.64k",
        "18",
        "V-B2",
        "NBW with early revocation over PW, 64 KiB",
        (12.88, Times),
        "writes per second, ratio",
    ),
    claim(
        "18.er.1024k",
        "18",
        "V-B2",
        "NBW with early revocation over PW, 1,024 KiB",
        (40.18, Times),
        "writes per second, ratio",
    ),
    claim(
        "18.pw.er",
        "18",
        "V-B2",
        "PW with early revocation over PW without: 'not affected'",
        (1.0, Times),
        "writes per second, ratio, 64 KiB",
    ),
    claim(
        "19.upgrade",
        "19",
        "V-B3",
        "NBW with upgrading over PW, mixed reads and writes: 'similar'",
        (1.0, Times),
        "operations per second, ratio, 64 KiB",
    ),
    claim(
        "19.same.64k",
        "19",
        "V-B3",
        "BW without downgrading over PW, two stripes: 'similar'",
        (1.0, Times),
        "writes per second, ratio, 64 KiB",
    ),
    claim(
        "19.bw.64k",
        "19",
        "V-B3",
        "BW with downgrading over PW, two stripes, 64 KiB",
        (2.48, Times),
        "writes per second, ratio",
    ),
    claim(
        "19.bw.1024k",
        "19",
        "V-B3",
        "BW with downgrading over PW, two stripes, 1,024 KiB",
        (9.40, Times),
        "writes per second, ratio",
    ),
    input(claim(
        "t3.bandwidth.seqdlm",
        "table3",
        "Table III",
        "N-1 segmented 64 KiB, SeqDLM: bandwidth",
        (33.2, GigabytesPerSecond),
        "bytes / PIO time",
    )),
    claim(
        "t3.bandwidth.basic",
        "table3",
        "Table III",
        "N-1 segmented 64 KiB, DLM-basic: bandwidth",
        (33.8, GigabytesPerSecond),
        "bytes / PIO time",
    ),
    claim(
        "t3.bandwidth.lustre",
        "table3",
        "Table III",
        "N-1 segmented 64 KiB, DLM-Lustre: bandwidth",
        (33.7, GigabytesPerSecond),
        "bytes / PIO time",
    ),
    input(claim(
        "t3.total.seqdlm",
        "table3",
        "Table III",
        "N-1 segmented 64 KiB, SeqDLM: PIO and F",
        (18.1, Seconds),
        "PIO time + flushing time",
    )),
    claim(
        "t3.total.basic",
        "table3",
        "Table III",
        "N-1 segmented 64 KiB, DLM-basic: PIO and F",
        (19.1, Seconds),
        "PIO time + flushing time",
    ),
    claim(
        "t3.total.lustre",
        "table3",
        "Table III",
        "N-1 segmented 64 KiB, DLM-Lustre: PIO and F",
        (19.5, Seconds),
        "PIO time + flushing time",
    ),
    claim(
        "20.strided.64k",
        "20",
        "V-C1",
        "SeqDLM: strided as a share of segmented, 64 KiB",
        (81.7, Percent),
        "bandwidths by PIO time, ratio",
    ),
    claim(
        "20.strided.1024k",
        "20",
        "V-C1",
        "SeqDLM: strided as a share of segmented, 1,024 KiB",
        (96.9, Percent),
        "bandwidths by PIO time, ratio",
    ),
    claim(
        "20.basic",
        "20",
        "V-C1",
        "strided: SeqDLM over DLM-basic, up to",
        (18.1, Times),
        "largest ratio of bandwidths over the sizes",
    ),
    claim(
        "20.lustre",
        "20",
        "V-C1",
        "strided: SeqDLM over DLM-Lustre, up to",
        (18.1, Times),
        "largest ratio of bandwidths over the sizes; the paper gives one number for both",
    ),
    claim(
        "20.share.seqdlm",
        "20",
        "V-C1",
        "strided, SeqDLM: PIO as a share of the total time, about",
        (5.0, Percent),
        "PIO / (PIO + F), mean over the sizes",
    ),
    claim(
        "20.share.basic",
        "20",
        "V-C1",
        "strided, DLM-basic: PIO as a share of the total time, up to",
        (99.0, Percent),
        "PIO / (PIO + F), largest over the sizes",
    ),
    claim(
        "20.share.lustre",
        "20",
        "V-C1",
        "strided, DLM-Lustre: PIO as a share of the total time, up to",
        (99.0, Percent),
        "PIO / (PIO + F), largest over the sizes",
    ),
    claim(
        "21.s4.small",
        "21",
        "V-C2",
        "4 stripes, 47,008 bytes: SeqDLM over DLM-Lustre",
        (3.6, Times),
        "bandwidths by PIO time, ratio",
    ),
    claim(
        "21.s4.large",
        "21",
        "V-C2",
        "4 stripes, 47,008 × 16 bytes: SeqDLM over DLM-Lustre",
        (10.3, Times),
        "bandwidths by PIO time, ratio",
    ),
    claim(
        "21.s8.small",
        "21",
        "V-C2",
        "8 stripes, 47,008 bytes: SeqDLM over DLM-Lustre",
        (2.0, Times),
        "bandwidths by PIO time, ratio",
    ),
    claim(
        "21.s8.large",
        "21",
        "V-C2",
        "8 stripes, 47,008 × 16 bytes: SeqDLM over DLM-Lustre",
        (6.2, Times),
        "bandwidths by PIO time, ratio",
    ),
    claim(
        "23.s1",
        "23",
        "V-D",
        "Tile-IO, 1 stripe: SeqDLM over DLM-datatype",
        (51.0, Times),
        "bandwidths by PIO time, ratio",
    ),
    claim(
        "23.s16",
        "23",
        "V-D",
        "Tile-IO, 16 stripes: SeqDLM over DLM-datatype",
        (4.1, Times),
        "bandwidths by PIO time, ratio",
    ),
    claim(
        "24.small.s1",
        "24",
        "V-E",
        "VPIC-IO, 256 KiB, 1 stripe: SeqDLM over DLM-Lustre",
        (6.2, Times),
        "bandwidths by PIO time, ratio",
    ),
    claim(
        "24.small.s16",
        "24",
        "V-E",
        "VPIC-IO, 256 KiB, 16 stripes: SeqDLM over DLM-Lustre",
        (1.5, Times),
        "bandwidths by PIO time, ratio",
    ),
    claim(
        "24.large.s1",
        "24",
        "V-E",
        "VPIC-IO, 1 MiB, 1 stripe: SeqDLM over DLM-Lustre",
        (34.8, Times),
        "bandwidths by PIO time, ratio",
    ),
    claim(
        "24.large.s16",
        "24",
        "V-E",
        "VPIC-IO, 1 MiB, 16 stripes: SeqDLM over DLM-Lustre",
        (8.8, Times),
        "bandwidths by PIO time, ratio",
    ),
    claim(
        "25.small.s1",
        "25",
        "V-E",
        "VPIC-IO, 256 KiB, 1 stripe: total time of SeqDLM over that of DLM-Lustre: 'similar'",
        (1.0, Times),
        "PIO + F, ratio",
    ),
    claim(
        "25.small.s16",
        "25",
        "V-E",
        "VPIC-IO, 256 KiB, 16 stripes: total time, SeqDLM over DLM-Lustre: 'similar'",
        (1.0, Times),
        "PIO + F, ratio",
    ),
    claim(
        "25.large.s1",
        "25",
        "V-E",
        "VPIC-IO, 1 MiB, 1 stripe: total time, SeqDLM over DLM-Lustre: 'similar'",
        (1.0, Times),
        "PIO + F, ratio",
    ),
    claim(
        "25.large.s4",
        "25",
        "V-E",
        "VPIC-IO, 1 MiB, 4 stripes: total time, SeqDLM over DLM-Lustre: 'similar'",
        (1.0, Times),
        "PIO + F, ratio",
    ),
    claim(
        "25.large.s16",
        "25",
        "V-E",
        "VPIC-IO, 1 MiB, 16 stripes: total time, SeqDLM over DLM-Lustre: 'similar'",
        (1.0, Times),
        "PIO + F, ratio",
    ),
];

/// A claim by name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Claim> {
    CLAIMS.iter().find(|claim| claim.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_number_that_the_issue_lists_is_there_and_has_a_name_of_its_own() {
        let names: BTreeSet<&str> = CLAIMS.iter().map(|claim| claim.name).collect();
        assert_eq!(names.len(), CLAIMS.len());
        let values = [
            40.18, 30.29, 12.88, 4.26, 18.1, 10.3, 3.6, 6.2, 2.0, 2.48, 9.40, 81.7, 96.9, 33.2, 33.8, 33.7,
            18.1, 19.1, 19.5, 51.0, 4.1, 1.5, 34.8, 8.8, 67.9, 69.3, 66.5, 95.7, 5.0, 99.0,
        ];
        for value in values {
            assert!(CLAIMS.iter().any(|claim| claim.paper == value), "{value}");
        }
    }
}
