//! `ccpfs mount` and `ccpfs umount`: the namespace as a file system of the kernel.

mod background;
mod helper;
mod record;
mod umount;

pub(crate) use helper::arguments as helper_arguments;
pub(crate) use umount::{UmountArguments, run as run_umount};

use crate::cluster::ClusterChoice;
use crate::failure::{Context, Failure};
use crate::sys::{self, Signal};
use ccpfs_config::ClientConfig;
use ccpfs_fuse::{MountOptions, Mounted};
use record::Record;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Options of `ccpfs mount`.
#[derive(Debug, clap::Args)]
pub(crate) struct MountArguments {
    #[command(flatten)]
    cluster: ClusterChoice,
    /// An existing directory outside of the namespace directory.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Stay in the foreground: SIGINT and SIGTERM unmount.
    #[arg(long, short = 'f')]
    foreground: bool,
    /// Mount options, separated by commas, as of mount(8): ro, nosuid, nodev, noexec, noatime, …; allow_other and
    /// noallow_other (default: allowed if root mounts); acl and noacl (default: as the namespace's file system);
    /// entry_timeout=S and attr_timeout=S, seconds (default 0: always coherent); max_write=BYTES (default 1048576);
    /// io_uring=auto, on or off (default auto: if the kernel's parameter enable_uring is Y); raise_size=on or off (default on:
    /// several writers of one growing file do not take turns in the kernel); fsname=NAME.
    #[arg(short = 'o', value_name = "OPTIONS")]
    options: Vec<String>,
    /// Log of a mount in the background (default: a file in the run directory, /run/ccpfs for root).
    #[arg(long, value_name = "FILE")]
    log_file: Option<PathBuf>,
    /// Says on standard output when the mount is there; used by the parent of a mount in the background.
    #[arg(long, hide = true)]
    announce: bool,
}

impl MountArguments {
    fn mount_options(&self) -> Result<MountOptions, Failure> {
        let mut options = MountOptions::default();
        for text in &self.options {
            options.parse(text).map_err(Failure::usage)?;
        }
        Ok(options)
    }
}

/// Mounts; returns when the mount has ended or, in the background, when it is there.
pub(crate) fn run(arguments: &MountArguments) -> Result<(), Failure> {
    let config_path = arguments.cluster.config_path()?;
    let config = ClientConfig::load(Some(&config_path))?;
    let options = arguments.mount_options()?;
    if !arguments.foreground {
        return background::start(arguments, &config_path);
    }
    sys::block_termination();
    let mounted = ccpfs_fuse::mount(config, &arguments.directory, &options);
    let mounted = mounted.map_err(|error| Failure::new(error.to_string()))?;
    let record = Record::write(mounted.directory());
    if arguments.announce {
        background::announce(arguments.log_file.as_deref(), mounted.directory());
    }
    let ended = until_it_ends(mounted);
    if let Some(record) = record {
        record.close(ended.as_ref().err());
    }
    ended
}

fn until_it_ends(mounted: Mounted) -> Result<(), Failure> {
    let mounted = Arc::new(mounted);
    let watched = Arc::clone(&mounted);
    let watch = std::thread::Builder::new().name("ccpfs-watch".to_owned()).spawn(move || {
        watched.wait();
        // The main thread waits for signals only.
        let _ = sys::send_signal(std::process::id(), Signal::Terminate);
    });
    watch.context(|| "cannot start a thread".to_owned())?;
    while !sys::termination_within(u32::MAX) {}
    if !mounted.has_ended() {
        // Whoever uses it now will be left with ENOTCONN; nobody new may come.
        if let Err(error) = mounted.detach() {
            tracing::warn!("cannot unmount {}: {error}", mounted.directory().display());
        }
    }
    let directory = mounted.directory().display();
    mounted.finish().context(|| format!("{directory} is unmounted, but not everything could be stored"))
}

/// What a person calls the mount on a directory.
fn name_of(directory: &Path) -> String {
    format!("the mount on {}", directory.display())
}
