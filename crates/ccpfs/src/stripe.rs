//! `ccpfs stripe`: how files are laid over stripes, as `lfs getstripe` and `lfs setstripe` do.

use crate::cluster::ClusterChoice;
use crate::failure::{Context, Failure, say};
use ccpfs_client::{Client, OpenOptions};
use ccpfs_config::{Bytes, ClientConfig};
use ccpfs_types::limits::STRIPES_MAX;
use ccpfs_types::{FileId, Layout};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Subcommands of `ccpfs stripe`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum StripeCommand {
    /// Show the striping of files, and the default of directories for new files.
    Get {
        #[command(flatten)]
        cluster: ClusterChoice,
        /// Files and directories of the namespace.
        #[arg(required = true, value_name = "PATH")]
        paths: Vec<PathBuf>,
    },
    /// Create an empty file with a striping, or set a directory's default for new files.
    Set {
        #[command(flatten)]
        cluster: ClusterChoice,
        /// Number of stripes (default: as the directory or configuration says).
        #[arg(long, short = 'c', value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(STRIPES_MAX)))]
        count: Option<u32>,
        /// Bytes in one unit of a stripe: a multiple of 4KiB (default: as the directory or configuration says).
        #[arg(long, short = 'S', value_name = "SIZE")]
        size: Option<Bytes>,
        /// A file that does not exist yet, or a directory.
        path: PathBuf,
    },
}

/// Runs one of the subcommands.
pub(crate) fn run(command: &StripeCommand) -> Result<(), Failure> {
    match command {
        StripeCommand::Get { cluster, paths } => get(cluster, paths),
        StripeCommand::Set { cluster, count, size, path } => set(cluster, *count, *size, path),
    }
}

fn start(cluster: &ClusterChoice) -> Result<Client, Failure> {
    let config = ClientConfig::load(Some(&cluster.config_path()?))?;
    Client::start(config).context(|| "cannot start a client".to_owned())
}

/// One line per property, as `lfs getstripe` prints them.
fn describe(path: &Path, layout: Layout, file: Option<FileId>) -> String {
    let (count, size) = (layout.stripe_count(), layout.stripe_bytes());
    let file = file.map(|file| format!("file_id:       {file}\n")).unwrap_or_default();
    format!("{}\nstripe_count:  {count}\nstripe_size:   {size}\n{file}", path.display())
}

fn get(cluster: &ClusterChoice, paths: &[PathBuf]) -> Result<(), Failure> {
    let client = start(cluster)?;
    let mut failed = 0;
    for path in paths {
        // A directory has a default for new files, and no identity among the files.
        let file = if path.is_dir() { None } else { client.stub(path).ok().map(|stub| stub.file) };
        match client.layout(path) {
            Ok(layout) => say(describe(path, layout, file)),
            Err(error) => {
                eprintln!("ccpfs: {}: {error}", path.display());
                failed += 1;
            }
        }
    }
    match failed {
        0 => Ok(()),
        count => Err(Failure::new(format!("{count} of {} paths have no striping to show", paths.len()))),
    }
}

/// The layout that `count` and `size` ask for, where `before` holds for what they leave open.
fn choose(before: Layout, count: Option<u32>, size: Option<Bytes>) -> Result<Layout, Failure> {
    let count = count.unwrap_or(before.stripe_count());
    let size = size.map_or(before.stripe_bytes(), |size| size.0);
    Layout::new(count, size).ok_or_else(|| {
        Failure::usage(format!("--size {} is not allowed: a multiple of 4KiB, 4KiB to 1TiB", Bytes(size)))
    })
}

fn set(cluster: &ClusterChoice, count: Option<u32>, size: Option<Bytes>, path: &Path) -> Result<(), Failure> {
    if count.is_none() && size.is_none() {
        return Err(Failure::usage("nothing to set: give --count, --size, or both"));
    }
    let client = start(cluster)?;
    let failed = || format!("cannot set the striping of {}", path.display());
    match std::fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => {
            let layout = choose(client.layout(path).context(failed)?, count, size)?;
            client.set_directory_layout(path, layout).context(failed)
        }
        Ok(_) => {
            let path = path.display();
            Err(Failure::new(format!("{path} exists: the striping of a file is set when it is created")))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            let before = client.layout(folder.unwrap_or(Path::new("."))).context(failed)?;
            let layout = Some(choose(before, count, size)?);
            let options = OpenOptions {
                write: true,
                create: true,
                exclusive: true,
                mode: 0o666,
                layout,
                ..OpenOptions::default()
            };
            client.open(path, &options).and_then(ccpfs_client::File::close).context(failed)
        }
        Err(error) => Err(Failure::new(format!("{}: {error}", failed()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_said_stays() {
        let before = Layout::new(4, 1 << 20).unwrap();
        assert_eq!(choose(before, Some(2), None).unwrap(), Layout::new(2, 1 << 20).unwrap());
        assert_eq!(choose(before, None, Some(Bytes(4096))).unwrap(), Layout::new(4, 4096).unwrap());
        let refused = choose(before, None, Some(Bytes(5000))).unwrap_err().to_string();
        assert!(refused.contains("5000") && refused.contains("4KiB"), "{refused}");
    }

    #[test]
    fn a_layout_is_shown_like_lfs_does() {
        let layout = Layout::new(4, 1 << 20).unwrap();
        let text = describe(Path::new("/ns/d"), layout, None);
        assert_eq!(text, "/ns/d\nstripe_count:  4\nstripe_size:   1048576\n");
        let text = describe(Path::new("/ns/f"), layout, Some(FileId([0x0a; 16])));
        assert!(text.ends_with(&format!("file_id:       {}\n", "0a".repeat(16))));
    }
}
