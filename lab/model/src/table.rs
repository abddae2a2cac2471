//! The worlds that are searched: a table.

use crate::config::{BYTES, Config, Op, Options, PLAIN, Part, Protocol};

const fn part(stripe: u8, start: u8, end: u8) -> Part {
    assert!(start < end && end as usize <= BYTES);
    Part { stripe, start, end }
}

const W01: Op = Op::Write(&[part(0, 0, 1)]);
const W02: Op = Op::Write(&[part(0, 0, 2)]);
const W13: Op = Op::Write(&[part(0, 1, 3)]);
const W04: Op = Op::Write(&[part(0, 0, 4)]);
const W24: Op = Op::Write(&[part(0, 2, 4)]);
/// Single bytes of the first, for sections of every second byte.
const B0: Op = Op::Write(&[part(0, 0, 1)]);
const B1: Op = Op::Write(&[part(0, 1, 2)]);
const B2: Op = Op::Write(&[part(0, 2, 3)]);
const B3: Op = Op::Write(&[part(0, 3, 4)]);
const R01: Op = Op::Read(&[part(0, 0, 1)]);
const R02: Op = Op::Read(&[part(0, 0, 2)]);
const R03: Op = Op::Read(&[part(0, 0, 3)]);
const R04: Op = Op::Read(&[part(0, 0, 4)]);
/// A write, and a read, of two stripes.
const WW: Op = Op::Write(&[part(0, 0, 1), part(1, 0, 1)]);
const RR: Op = Op::Read(&[part(0, 0, 1), part(1, 0, 1)]);
/// Two parts of one stripe, and of two; the same, read.
const PP: Op = Op::Write(&[part(0, 0, 1), part(0, 2, 3)]);
const RP: Op = Op::Read(&[part(0, 0, 1), part(0, 2, 3)]);
const PPW: Op = Op::Write(&[part(0, 0, 1), part(0, 2, 3), part(1, 0, 1)]);
/// One stripe of them.
const Z0: Op = Op::Write(&[part(0, 0, 1)]);
const Z1: Op = Op::Write(&[part(1, 0, 1)]);
const A1: Op = Op::Append { stripe: 0, length: 1 };
const A2: Op = Op::Append { stripe: 0, length: 2 };
const T1: Op = Op::Truncate { stripe: 0, length: 1 };
const SZ: Op = Op::Size { stripe: 0 };
const T3: Op = Op::Truncate { stripe: 0, length: 3 };

const ONE: Config = Config {
    name: "",
    about: "",
    nodes: &[],
    stripes: 1,
    shards: 1,
    length: 4,
    policy: "seqdlm",
    options: PLAIN,
    states_max: None,
    small: false,
};
const TWO: Config = Config { stripes: 2, shards: 2, ..ONE };

const ALT: Options = Options { protocol: Protocol::AltTry, ..PLAIN };
const ONCE: Options = Options { protocol: Protocol::OneTry, ..PLAIN };
const STRIDED: Options = Options { stride: 2, ..PLAIN };

const SLOW: Options = Options { slow_device: true, ..PLAIN };
const TRIMS: Options = Options { trims: true, ..PLAIN };

/// All worlds, small ones first.
pub static CONFIGS: &[Config] = &[
    Config {
        name: "two-writers",
        about: "two blind writes that overlap, each followed by a read",
        nodes: &[&[&[W02, R03]], &[&[W13, R03]]],
        small: true,
        ..ONE
    },
    Config {
        name: "write-read",
        about: "one client writes twice, the other reads twice",
        nodes: &[&[&[W02, W02]], &[&[R02, R02]]],
        small: true,
        ..ONE
    },
    Config {
        name: "readers-and-writer",
        about: "a writer between readers: nobody passes whom it stands against",
        nodes: &[&[&[R02]], &[&[W02]], &[&[R02]]],
        small: true,
        ..ONE
    },
    Config {
        name: "three-writers",
        about: "three clients write the same bytes",
        nodes: &[&[&[W02]], &[&[W02]], &[&[W02, R02]]],
        ..ONE
    },
    Config {
        name: "three-writers-again",
        about: "three clients write the same bytes, one of them twice: no lock is used again that was granted to go",
        nodes: &[&[&[W02]], &[&[W02, W02]], &[&[W02]]],
        policy: "seqdlm-no-expansion",
        ..ONE
    },
    Config {
        name: "upgrade",
        about: "read, write, read: each client upgrades its own lock against the other",
        nodes: &[&[&[R02, W02, R02]], &[&[R02, W02]]],
        small: true,
        ..ONE
    },
    Config {
        name: "whole-calls",
        about: "calls over two stripes on two servers are atomic",
        nodes: &[&[&[WW]], &[&[WW, RR]]],
        small: true,
        ..TWO
    },
    Config {
        name: "whole-calls-one-server",
        about: "the same over one connection",
        nodes: &[&[&[WW, RR]], &[&[WW, RR]]],
        shards: 1,
        states_max: Some(400_000),
        ..TWO
    },
    Config {
        name: "whole-calls-three",
        about: "two writers and a reader of two stripes",
        nodes: &[&[&[WW]], &[&[WW]], &[&[RR]]],
        ..TWO
    },
    Config {
        name: "whole-and-half",
        about: "a call over two stripes among calls of each",
        nodes: &[&[&[WW]], &[&[Z0, Z1]], &[&[RR]]],
        states_max: Some(400_000),
        ..TWO
    },
    Config {
        name: "alt-try",
        about: "calls over two stripes ask for both at once, then by turns; what is wanted next is asked for ahead",
        nodes: &[&[&[WW]], &[&[WW]]],
        options: ALT,
        small: true,
        ..TWO
    },
    Config {
        name: "alt-try-again",
        about: "the same, with a read behind each write: locks are kept, and taken back",
        nodes: &[&[&[WW]], &[&[WW, RR]]],
        options: ALT,
        ..TWO
    },
    Config {
        name: "alt-try-three",
        about: "three clients want both stripes, and one of them wants one alone",
        nodes: &[&[&[WW]], &[&[WW]], &[&[Z1]]],
        options: ALT,
        ..TWO
    },
    Config {
        name: "alt-try-datatype",
        about: "the same under the policy of paper 001: exact, nothing early",
        nodes: &[&[&[WW]], &[&[WW, RR]]],
        policy: "datatype",
        options: ALT,
        ..TWO
    },
    Config {
        name: "one-try",
        about: "calls over two stripes ask for both at once, and then in order",
        nodes: &[&[&[WW]], &[&[WW, RR]]],
        options: ONCE,
        ..TWO
    },
    Config {
        name: "parts",
        about: "calls with two locks on one stripe, in order (R47)",
        nodes: &[&[&[PP]], &[&[PP, RP]]],
        ..ONE
    },
    Config {
        name: "parts-alt-try",
        about: "two locks on one stripe, both at once and then by turns",
        nodes: &[&[&[PP]], &[&[PP]]],
        options: ALT,
        small: true,
        ..ONE
    },
    Config {
        name: "parts-datatype",
        about: "the same under the policy of paper 001, with a reader of all between",
        nodes: &[&[&[PP]], &[&[PP]], &[&[R04]]],
        policy: "datatype",
        options: ALT,
        ..ONE
    },
    Config {
        name: "parts-and-stripes",
        about: "two locks on one stripe and one on another",
        nodes: &[&[&[PPW]], &[&[PPW]]],
        options: ALT,
        ..TWO
    },
    Config {
        name: "append",
        about: "both clients append twice",
        nodes: &[&[&[A1, A1]], &[&[A1, A1]]],
        length: 0,
        small: true,
        ..ONE
    },
    Config {
        name: "append-write-read",
        about: "an append beside a write that makes the file longer and a read to its end",
        nodes: &[&[&[A1]], &[&[W02]], &[&[R04]]],
        length: 0,
        ..ONE
    },
    Config {
        name: "size",
        about: "one client asks for the size while another writes and cuts",
        nodes: &[&[&[SZ, SZ]], &[&[W02, W24, T1]]],
        length: 0,
        small: true,
        ..ONE
    },
    Config {
        name: "size-three",
        about: "a reader finds the end of the file by asking two writers",
        nodes: &[&[&[R02, SZ]], &[&[W13]], &[&[A1, T1]]],
        length: 0,
        states_max: Some(400_000),
        ..ONE
    },
    Config {
        name: "size-after-cut",
        about: "a flush whose release was performed is unanswered while its bytes are cut and the size is asked for (R24)",
        nodes: &[&[&[W24, W02]], &[&[T1, SZ]]],
        length: 0,
        ..ONE
    },
    Config {
        name: "size-put-off",
        about: "a CANCELING holder whose flush is put off knows of bytes that the newer holder does not",
        nodes: &[&[&[W04]], &[&[W02]], &[&[SZ, SZ]]],
        length: 0,
        small: true,
        ..ONE
    },
    Config {
        name: "size-slow-device",
        about: "the size while flushes and cuts are at the device",
        nodes: &[&[&[SZ, R04]], &[&[W24, W02, T3]]],
        length: 0,
        options: Options { flushes: true, ..SLOW },
        ..ONE
    },
    Config {
        name: "truncate",
        about: "a write, then a cut, against a write and a read",
        nodes: &[&[&[W04, T1]], &[&[W13, R04]]],
        small: true,
        ..ONE
    },
    Config {
        name: "truncate-append",
        about: "a file is cut and lengthened while another client appends",
        nodes: &[&[&[A2, T1]], &[&[A1, R04]]],
        length: 0,
        ..ONE
    },
    Config {
        name: "truncate-longer",
        about: "a cut to a longer length against one to a shorter",
        nodes: &[&[&[T3, R04]], &[&[W02, T1]]],
        length: 2,
        ..ONE
    },
    Config {
        name: "sections",
        about: "two clients that write every second byte each, and a third one that wants one of the first one's",
        nodes: &[&[&[B0, B2]], &[&[B1, B3]], &[&[B2]]],
        options: STRIDED,
        small: true,
        ..ONE
    },
    Config {
        name: "sections-narrowed",
        about: "a section of which somebody wants what has not been written yet, and both want more of each other's",
        nodes: &[&[&[B0, B2]], &[&[B2, R03]]],
        options: STRIDED,
        ..ONE
    },
    Config {
        name: "sections-shrink",
        about: "a section is given back, or narrowed, while it is asked for, and messages change places",
        nodes: &[&[&[B0, B2]], &[&[B2, B0]]],
        options: Options { shrinks: 1, swaps: true, flushes: true, ..STRIDED },
        states_max: Some(400_000),
        ..ONE
    },
    Config {
        name: "slow-device",
        about: "device tasks end in any order",
        nodes: &[&[&[W02, R02]], &[&[W02, R02]]],
        options: SLOW,
        ..ONE
    },
    Config {
        name: "slow-device-three",
        about: "three flushes of the same bytes, device tasks in any order",
        nodes: &[&[&[W02]], &[&[W02]], &[&[W02, R02]]],
        options: SLOW,
        ..ONE
    },
    Config {
        name: "trims",
        about: "extent caches are trimmed whenever they may be, and clients are forced to flush",
        nodes: &[&[&[W02, R03]], &[&[W13, R03]]],
        options: TRIMS,
        small: true,
        ..ONE
    },
    Config {
        name: "trims-three",
        about: "three writers of the same bytes and trimming",
        nodes: &[&[&[W02]], &[&[W02]], &[&[W02]]],
        options: Options { flushes: true, ..TRIMS },
        states_max: Some(400_000),
        ..ONE
    },
    Config {
        name: "trims-upgrade",
        about: "an upgrade keeps the lowest number of what it replaces",
        nodes: &[&[&[W02, R02]], &[&[W02]]],
        options: Options { flushes: true, ..TRIMS },
        ..ONE
    },
    Config {
        name: "trims-slow-device",
        about: "trimming while device tasks are under way",
        nodes: &[&[&[W02, R02]], &[&[W02]]],
        options: Options { slow_device: true, ..TRIMS },
        ..ONE
    },
    Config {
        name: "crash",
        about: "a client crashes at any moment; another reads twice",
        nodes: &[&[&[W02, W02]], &[&[R02, R02]]],
        options: Options { crashes: Some(0), ..PLAIN },
        small: true,
        ..ONE
    },
    Config {
        name: "crash-slow-device",
        about: "the same while its flushes are at the device",
        nodes: &[&[&[W02, W02]], &[&[W01, R02]]],
        options: Options { crashes: Some(0), ..SLOW },
        ..ONE
    },
    Config {
        name: "crash-whole-calls",
        about: "a client crashes in the middle of a call over two stripes",
        nodes: &[&[&[WW]], &[&[WW, RR]]],
        options: Options { crashes: Some(0), ..PLAIN },
        ..TWO
    },
    Config {
        name: "crash-trims",
        about: "a client crashes, and trimming goes on",
        nodes: &[&[&[W02, W02]], &[&[W02, R02]]],
        options: Options { crashes: Some(0), ..TRIMS },
        ..ONE
    },
    Config {
        name: "lose",
        about: "a client loses its connections at any moment and comes back under a new number",
        nodes: &[&[&[W02, R02]], &[&[W02, R02]]],
        options: Options { loses: Some(0), ..PLAIN },
        ..ONE
    },
    Config {
        name: "lose-fsync",
        about: "what fsync returned for survives the loss of its client",
        nodes: &[&[&[W02, Op::Sync, W01]], &[&[R02]]],
        options: Options { loses: Some(0), ..PLAIN },
        ..ONE
    },
    Config {
        name: "fsync",
        about: "fsync against another writer, device tasks in any order",
        nodes: &[&[&[W02, Op::Sync]], &[&[W02, Op::Sync]]],
        options: SLOW,
        ..ONE
    },
    Config {
        name: "threads",
        about: "two threads of one process share its locks, against another client",
        nodes: &[&[&[W01, R01], &[W13]], &[&[W02]]],
        ..ONE
    },
    Config {
        name: "threads-upgrade",
        about: "one thread upgrades the lock that another uses",
        nodes: &[&[&[R01, R01], &[W13]], &[&[W04]]],
        ..ONE
    },
    Config {
        name: "flushes",
        about: "clients flush unasked, a byte at a time",
        nodes: &[&[&[W02, W02]], &[&[W02, R02]]],
        options: Options { flushes: true, flush_bytes_max: 1, ..PLAIN },
        states_max: Some(400_000),
        ..ONE
    },
    Config {
        name: "late-bytes",
        about: "a flush carries what the pages hold when it arrives",
        nodes: &[&[&[W02, W02]], &[&[W02, R02]]],
        options: Options { flushes: true, late_bytes: true, ..PLAIN },
        ..ONE
    },
    Config {
        name: "swaps",
        about: "what a client tells unasked changes places on its way (R31)",
        nodes: &[&[&[W02, R03]], &[&[W13, R03]]],
        options: Options { swaps: true, shrinks: 1, ..PLAIN },
        ..ONE
    },
    Config {
        name: "shrinks",
        about: "clients give back locks that they are asked for",
        nodes: &[&[&[W02, R02]], &[&[W02, R02]]],
        options: Options { shrinks: 1, ..PLAIN },
        ..ONE
    },
    Config {
        name: "one-lock",
        about: "a client may keep one lock, and puts no flush off",
        nodes: &[&[&[W02, R03]], &[&[W13, R03]]],
        options: Options { locks_max: 1, put_off_max: 0, ..PLAIN },
        ..ONE
    },
    Config {
        name: "no-expansion",
        about: "locks of exactly what was asked for",
        nodes: &[&[&[W02, R03]], &[&[W13, R03]]],
        policy: "seqdlm-no-expansion",
        ..ONE
    },
    Config {
        name: "no-early-grant",
        about: "SeqDLM without early grant",
        nodes: &[&[&[W02, R03]], &[&[W13, R03]]],
        policy: "seqdlm-no-early-grant",
        ..ONE
    },
    Config {
        name: "no-upgrading",
        about: "SeqDLM without upgrades and downgrades",
        nodes: &[&[&[W02, R03]], &[&[W13, R03]]],
        policy: "seqdlm-no-upgrading-no-downgrading",
        ..ONE
    },
    Config {
        name: "basic",
        about: "the paper's DLM-basic",
        nodes: &[&[&[W02, R03]], &[&[W13, R03]]],
        policy: "basic",
        ..ONE
    },
    Config {
        name: "lustre",
        about: "the paper's DLM-Lustre",
        nodes: &[&[&[W02, R03]], &[&[W13, R03]]],
        policy: "lustre",
        ..ONE
    },
    Config {
        name: "deep-three",
        about: "three clients, each with a write and a read: for long runs",
        nodes: &[&[&[W02, R03]], &[&[W13, R03]], &[&[R02, W04]]],
        states_max: Some(300_000),
        ..ONE
    },
    Config {
        name: "deep-crash",
        about: "three clients, one of which crashes, slow devices and trimming: for long runs",
        nodes: &[&[&[W02, W13]], &[&[W13, R03]], &[&[W02, R03]]],
        options: Options { crashes: Some(0), slow_device: true, ..TRIMS },
        states_max: Some(300_000),
        ..ONE
    },
    Config {
        name: "deep-lose-whole-calls",
        about: "a client loses its connections in the middle of calls over two stripes: for long runs",
        nodes: &[&[&[WW, RR, WW]], &[&[WW, RR]]],
        shards: 1,
        options: Options { loses: Some(0), flushes: true, ..PLAIN },
        states_max: Some(300_000),
        ..TWO
    },
];
