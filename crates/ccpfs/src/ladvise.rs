//! `ccpfs ladvise`: says how files will be accessed, after Lustre's `lfs ladvise`.

use crate::cluster::ClusterChoice;
use crate::failure::{Context, Failure, say};
use ccpfs_client::{Advised, AheadMode, Client, File, HoldMode, OpenOptions};
use ccpfs_config::{Bytes, ClientConfig};
use ccpfs_types::Extent;
use ccpfs_types::limits::FILE_BYTES_MAX;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Options of `ccpfs ladvise`.
///
/// Extents are half-open: --start 0 --end 4096 and --start 4096 --end 8192 are neighbours
/// that share no byte. (Callers of Lustre's llapi_ladvise pass the last byte, end - 1, as its
/// kernel expects: add one when porting them.)
///
/// What each advice does:
///
///   willread    reads the range, so that the servers have it in their memory.
///
///   dontneed    makes every client write back and forget what it has of the range, so that
///               all of it is with the servers.
///
///   lockahead   asks for locks on exactly this range, for reading or writing, without
///               waiting for anybody or taking a lock away, and says for each file:
///               'granted'; 'denied' (somebody else has a lock in the way); with
///               --background, where the answer is not waited for, 'sent'.
///
///   noexpand    asks for no more locks than each access needs, instead of all that nobody
///               else has (--unset: the default again).
///
/// In ccPFS a lock belongs to a process, not to a node: locks that this command got, and its
/// noexpand, end with it. They are here to try out what programs do with ccpfs_lockahead()
/// and ccpfs_lock_expansion() of <ccpfs.h>, or with hints of MPI-IO. Programs that write
/// pieces of a shared file at regular distances need no advice: their clients see it
/// (client.desired_sections).
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct LadviseArguments {
    #[command(flatten)]
    cluster: ClusterChoice,
    /// What to advise.
    #[arg(long, short = 'a', value_name = "ADVICE", value_enum)]
    advice: Advice,
    /// Do not wait for the servers' answers (lockahead).
    #[arg(long, short = 'b')]
    background: bool,
    /// First byte.
    #[arg(long, short = 's', value_name = "START", default_value = "0")]
    start: Bytes,
    /// One past the last byte (default: to the end of the file, whatever it is or becomes).
    #[arg(long, short = 'e', value_name = "END", conflicts_with = "length")]
    end: Option<Bytes>,
    /// Number of bytes, instead of --end.
    #[arg(long, short = 'l', value_name = "LEN")]
    length: Option<Bytes>,
    /// What the locks are for (lockahead, where it is required).
    #[arg(long, short = 'm', value_name = "MODE", value_enum, ignore_case = true, conflicts_with = "unset")]
    mode: Option<Mode>,
    /// Take the advice back (noexpand).
    #[arg(long, short = 'u')]
    unset: bool,
    /// Files of the namespace.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Advice {
    /// The range will be read soon.
    Willread,
    /// Nobody needs the range in memory.
    Dontneed,
    /// Locks on the range will be needed.
    Lockahead,
    /// Locks are to be no larger than each access.
    #[value(alias = "locknoexpand")]
    Noexpand,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Mode {
    /// Locks for reading.
    Read,
    /// Locks for writing.
    Write,
}

impl From<Mode> for AheadMode {
    fn from(mode: Mode) -> AheadMode {
        match mode {
            Mode::Read => AheadMode::Read,
            Mode::Write => AheadMode::Write,
        }
    }
}

/// Gives the advice for each file.
pub(crate) fn run(arguments: &LadviseArguments) -> Result<(), Failure> {
    let extent = range(arguments.start.0, arguments.end, arguments.length)?;
    match (arguments.advice, arguments.mode, arguments.unset) {
        (Advice::Lockahead, None, _) => {
            return Err(Failure::usage("lockahead needs --mode READ or --mode WRITE"));
        }
        (Advice::Willread | Advice::Dontneed | Advice::Noexpand, Some(_), _) => {
            return Err(Failure::usage("--mode is for lockahead"));
        }
        (Advice::Willread | Advice::Dontneed | Advice::Lockahead, _, true) => {
            return Err(Failure::usage("--unset is for noexpand"));
        }
        (Advice::Lockahead, Some(_), false) | (_, None, _) => {}
    }
    let config = ClientConfig::load(Some(&arguments.cluster.config_path()?))?;
    let client = Client::start(config).context(|| "cannot start a client".to_owned())?;
    let mut failed = 0;
    for path in &arguments.files {
        match advise(&client, path, extent, arguments) {
            Ok(said) => say(format!("{}: {said}", path.display())),
            Err(failure) => {
                eprintln!("ccpfs: {}: {failure}", path.display());
                failed += 1;
            }
        }
    }
    client.shutdown().context(|| "cannot end the client".to_owned())?;
    match failed {
        0 => Ok(()),
        count => Err(Failure::new(format!(
            "the advice was refused for {count} of {} files",
            arguments.files.len()
        ))),
    }
}

/// The bytes that are meant.
fn range(start: u64, end: Option<Bytes>, length: Option<Bytes>) -> Result<Extent, Failure> {
    let end = match (end, length) {
        (Some(end), _) => Some(end.0),
        (None, Some(length)) => {
            let end = start.checked_add(length.0);
            Some(end.ok_or_else(|| Failure::usage("--start and --length end beyond the largest file"))?)
        }
        (None, None) => None,
    };
    match end {
        None if start < FILE_BYTES_MAX => Ok(Extent::to_eof(start)),
        Some(end) if end <= FILE_BYTES_MAX && start < end => {
            Ok(Extent::new(start, end).expect("the end is behind the start"))
        }
        Some(_) | None => Err(Failure::usage(
            "the range is empty or ends beyond the largest file: --end is one past the last byte",
        )),
    }
}

fn advise(
    client: &Client,
    path: &Path,
    extent: Extent,
    arguments: &LadviseArguments,
) -> Result<&'static str, Failure> {
    let writes = arguments.mode == Some(Mode::Write) || arguments.advice == Advice::Dontneed;
    let options = OpenOptions { read: true, write: writes, ..OpenOptions::default() };
    let file = client.open(path, &options).context(|| "cannot open it".to_owned())?;
    let refused = || "the advice was refused".to_owned();
    match arguments.advice {
        Advice::Willread => file.will_read(extent).context(refused).map(|()| "read"),
        Advice::Dontneed => {
            // Whoever has something of it gives it back to whoever takes it.
            let within = Extent::new(extent.start(), extent.end().min(FILE_BYTES_MAX)).expect("checked");
            file.hold(within, HoldMode::Write, Arc::new(|_| {})).context(refused)?.release();
            Ok("written back")
        }
        Advice::Lockahead => {
            let mode = arguments.mode.expect("checked").into();
            lockahead(&file, extent, mode, arguments.background)
        }
        Advice::Noexpand => {
            file.set_lock_expansion(arguments.unset);
            Ok(if arguments.unset { "locks expand" } else { "locks do not expand" })
        }
    }
}

fn lockahead(
    file: &File,
    extent: Extent,
    mode: AheadMode,
    background: bool,
) -> Result<&'static str, Failure> {
    let ask = || -> Result<Advised, Failure> {
        let refused = || "the advice was refused".to_owned();
        let mut results = file.lockahead(&[extent], mode).context(refused)?;
        results.pop().expect("one advice has one result").context(refused)
    };
    let first = ask()?;
    if background || first != Advised::Sent {
        return Ok(named(first));
    }
    file.await_lockahead();
    Ok(if ask()? == Advised::Sent { "denied" } else { "granted" })
}

fn named(advised: Advised) -> &'static str {
    match advised {
        Advised::Sent => "sent",
        Advised::Same => "same",
        Advised::Different => "different",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_one_past_the_last_byte_and_nothing_is_no_range() {
        let bytes = |number| Some(Bytes(number));
        assert_eq!(range(0, bytes(4096), None).unwrap(), Extent::new(0, 4096).unwrap());
        assert_eq!(range(4096, None, bytes(4096)).unwrap(), Extent::new(4096, 8192).unwrap());
        assert_eq!(range(7, None, None).unwrap(), Extent::to_eof(7));
        for (start, end, length) in [
            (5, bytes(5), None),
            (5, None, bytes(0)),
            (5, bytes(u64::MAX), None),
            (5, None, bytes(u64::MAX)),
            (u64::MAX, None, None),
        ] {
            assert!(range(start, end, length).is_err(), "{start} {end:?} {length:?}");
        }
    }
}
