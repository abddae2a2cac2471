//! One check: the walk, the stock of the servers, and a second look at whatever does not fit.

use super::report::{Finding, Outcome, Report, Trouble, below, size};
use super::stock::{self, Stores};
use super::walk::{self, Named, Names};
use super::{Wish, orphans};
use ccpfs_client::{Client, Contents, Looked, Resealed, Stub, StubState};
use ccpfs_types::{FileId, ResourceId};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Whoever closes a file seals it a moment after he has said that he does not write any more.
const SEALING: Duration = Duration::from_millis(300);

/// See the module.
pub(crate) struct Check {
    pub(crate) client: Client,
    pub(crate) namespace: PathBuf,
    pub(crate) wish: Wish,
    pub(crate) report: Report,
}

impl Check {
    pub(crate) fn new(client: Client, namespace: PathBuf, wish: Wish, report: Report) -> Check {
        Check { client, namespace, wish, report }
    }

    pub(crate) fn into_report(self) -> Report {
        self.report
    }

    /// Checks the whole namespace, or what is below `paths`.
    pub(crate) fn run(&mut self, paths: &[PathBuf]) {
        let complete = paths.is_empty();
        // Notes first: what is noted later need not be missed on the servers.
        let notes = if complete { self.notes() } else { BTreeMap::new() };
        let whole = [self.namespace.clone()];
        let roots = if complete { &whole[..] } else { paths };
        let report = &self.report;
        let tell = |names: &Names| report.step(format!("{} files so far", names.files.len()));
        let mut names = walk::walk(&self.client, &self.namespace, roots, tell);
        self.report.counts.files = names.files.len() as u64;
        self.report.counts.directories = names.directories;
        for (path, why) in std::mem::take(&mut names.unseen) {
            self.report.unseen(below(&path, &self.namespace), why);
        }
        self.report_stubs(&names);
        let stores = stock::take(&self.client, &mut names.files, complete, &mut self.report);
        self.files(&names, &stores);
        self.strays(&names, &stores);
        orphans::check(self, &names, &stores, &notes);
    }

    fn notes(&mut self) -> BTreeMap<FileId, Stub> {
        match self.client.orphans() {
            Ok(notes) => notes.into_iter().map(|record| (record.file, record)).collect(),
            Err(error) => {
                self.report.unseen("the notes of removed files", error);
                BTreeMap::new()
            }
        }
    }

    pub(crate) fn found(&mut self, trouble: Trouble, subject: Subject, what: String, outcome: Outcome) {
        let Subject { file, paths, bytes } = subject;
        self.report.found(Finding { trouble, file, paths, bytes, what, outcome });
    }

    /// What is wrong with stubs whatever servers have.
    fn report_stubs(&mut self, names: &Names) {
        for damaged in &names.damaged {
            let subject =
                Subject { file: damaged.perhaps, paths: vec![damaged.path.clone()], ..Subject::default() };
            let advice = "restore the stub from a backup of the namespace, or remove it";
            self.found(Trouble::Damaged, subject, damaged.why.clone(), Outcome::Left(advice.to_owned()));
        }
        for (file, copies) in &names.copies {
            let mut paths = vec![names.files[file].path.clone()];
            paths.extend(copies.iter().cloned());
            let what = format!("{} files name the same data; one is a copied stub", paths.len());
            let advice =
                "copy the contents through ccPFS to a new file, then remove the copied stub without ccPFS";
            let subject = Subject { file: Some(*file), paths, bytes: None };
            self.found(Trouble::Shared, subject, what, Outcome::Left(advice.to_owned()));
        }
    }

    /// Compares what files say with what their servers have.
    fn files(&mut self, names: &Names, stores: &Stores) {
        let mut unsealed = Vec::new();
        let mut unwatched = 0_u64;
        for named in names.files.values() {
            if !stores.silent.is_empty() && self.is_on(named, stores) {
                continue;
            }
            match named.record.state {
                StubState::Sealed(contents) if named.stock.fits(&contents) => {}
                StubState::Sealed(_) => self.contradiction(named),
                StubState::Unwatched => unwatched += 1,
                StubState::Unsealed { .. } => unsealed.push(named),
            }
        }
        if unwatched > 0 {
            self.report.remark(format!(
                "{unwatched} files were opened for writing by somebody who cannot be seen in the registry of open files: \
                 asking for their sizes costs messages"
            ));
        }
        let is_left = |client: &Client, file| client.is_being_written(file) == Some(false);
        unsealed.retain(|named| is_left(&self.client, named.record.file));
        if !unsealed.is_empty() {
            std::thread::sleep(SEALING);
        }
        for named in unsealed {
            let Some((stub, record)) = self.look_again(named) else { continue };
            if matches!(record.state, StubState::Unsealed { .. }) && is_left(&self.client, record.file) {
                let what = "its last writer did not close it: servers must be asked for its size".to_owned();
                let outcome = self.seal_again(&stub, &named.path);
                self.found(Trouble::Unsealed, Subject::of(named), what, outcome);
            }
        }
    }

    /// Whether a file has stripes on a shard that could not be asked.
    fn is_on(&self, named: &Named, stores: &Stores) -> bool {
        let resource = |stripe| ResourceId { file: named.record.file, stripe };
        let count = named.record.layout.stripe_count();
        (0..count).any(|stripe| stores.silent.contains(&self.client.target_of(resource(stripe))))
    }

    /// The stub of a file as it is at this moment; `None` if the name leads elsewhere.
    fn look_again(&mut self, named: &Named) -> Option<(File, Stub)> {
        match walk::look(&self.client, &named.path) {
            Ok(Some((stub, Looked::Stub { record, .. }))) if record.file == named.record.file => {
                Some((stub, record))
            }
            Ok(_) => None,
            Err(why) => {
                self.report.unseen(below(&named.path, &self.namespace), why);
                None
            }
        }
    }

    /// A sealed record that does not fit what servers were found to have: looks at both again.
    fn contradiction(&mut self, named: &Named) {
        let Some((stub, record)) = self.look_again(named) else { return };
        let StubState::Sealed(says) = record.state else { return };
        let measured = self.client.measure(record);
        let unchanged = self.look_again(named).is_some_and(|(_, again)| again == record);
        if !unchanged {
            return;
        }
        let data = match measured {
            Ok(data) => data,
            Err(error) => {
                self.report.unseen(below(&named.path, &self.namespace), error);
                return;
            }
        };
        let blocks = data.stored_bytes.div_ceil(4096);
        if (data.size, blocks) == (says.size, says.blocks) {
            return;
        }
        let lost = data.size < says.size || blocks < says.blocks;
        let (trouble, what) = if lost {
            (Trouble::Incomplete, self.missing(record, &says, data.size))
        } else {
            let servers = format!("{} in {blocks} blocks", size(data.size));
            let what =
                format!("it says {} in {} blocks, its servers have {servers}", size(says.size), says.blocks);
            (Trouble::Contradiction, what)
        };
        let outcome = self.seal_again(&stub, &named.path);
        self.found(trouble, Subject { bytes: Some(data.size), ..Subject::of(named) }, what, outcome);
    }

    /// Which bytes a file says it has and servers do not.
    fn missing(&self, record: Stub, says: &Contents, servers_size: u64) -> String {
        let layout = record.layout;
        let mut parts = Vec::new();
        for stripe in 0..layout.stripe_count() {
            let resource = ResourceId { file: record.file, stripe };
            let target = self.client.target_of(resource);
            let up_to = layout.stripe_length(stripe, says.size);
            let has = stock::find(&self.client, target, resource).ok().flatten();
            if has.is_none() && up_to > 0 {
                let address = self.client.config().targets().get(target as usize).map(ToString::to_string);
                let address = address.unwrap_or_default();
                parts.push(format!("nothing of stripe {stripe} (up to {} at {address})", size(up_to)));
            }
        }
        if servers_size < says.size {
            parts.push(format!("bytes {servers_size} to {} are missing", says.size));
        }
        let (count, parts) = (layout.stripe_count(), parts.join("; "));
        let unit = ccpfs_config::format_bytes(layout.stripe_bytes());
        format!("it says {}; of {count} stripes of {unit}: {parts}", size(says.size))
    }

    /// Lets the record say what the servers have.
    fn seal_again(&mut self, stub: &File, path: &Path) -> Outcome {
        if !self.wish.repair {
            return Outcome::Left("--repair lets the file say what its servers have".to_owned());
        }
        match self.client.seal_again(stub, path) {
            Ok(Resealed::Sealed(contents)) => Outcome::Mended(format!("it says {}", size(contents.size))),
            Ok(Resealed::Gone) => Outcome::Mended("it was removed meanwhile".to_owned()),
            Ok(Resealed::InUse) => Outcome::Left("somebody writes it, or nobody knows".to_owned()),
            Err(error) => Outcome::Failed(error.to_string()),
        }
    }

    /// Stripes that no file can reach.
    fn strays(&mut self, names: &Names, stores: &Stores) {
        for (target, stripe) in &stores.beyond {
            let resource = stripe.resource;
            let Some(named) = names.files.get(&resource.file) else { continue };
            let count = named.record.layout.stripe_count();
            let what = format!(
                "stripe {} of a file that has {count}: {}",
                resource.stripe,
                size(stripe.stored_bytes)
            );
            let outcome = if self.wish.delete_orphans && !names.copies.contains_key(&resource.file) {
                match self.client.remove_objects(*target, resource.file, &[resource.stripe]) {
                    Ok(true) => Outcome::Mended(format!("{} removed", size(stripe.stored_bytes))),
                    Ok(false) => Outcome::Left("somebody has the file open: try again later".to_owned()),
                    Err(error) => Outcome::Failed(error.to_string()),
                }
            } else {
                Outcome::Left("--delete-orphans removes it".to_owned())
            };
            let subject = Subject { bytes: Some(stripe.stored_bytes), ..Subject::of(named) };
            self.found(Trouble::Beyond, subject, what, outcome);
        }
        let targets = self.client.config().targets();
        let address = |target: u32| targets.get(target as usize).map(ToString::to_string).unwrap_or_default();
        for (target, stripe) in &stores.misplaced {
            let resource = stripe.resource;
            let (here, there) = (address(*target), address(self.client.target_of(resource)));
            let what = format!("stripe {} is at {here} and belongs to {there}", resource.stripe);
            let advice = "is the list of servers in the configuration the one the files were made with?";
            let named = names.files.get(&resource.file);
            let subject = Subject {
                file: Some(resource.file),
                paths: named.map(|named| named.path.clone()).into_iter().collect(),
                bytes: Some(stripe.stored_bytes),
            };
            self.found(Trouble::Misplaced, subject, what, Outcome::Left(advice.to_owned()));
        }
    }
}

/// What a finding is about.
#[derive(Clone, Debug, Default)]
pub(crate) struct Subject {
    pub(crate) file: Option<FileId>,
    pub(crate) paths: Vec<PathBuf>,
    pub(crate) bytes: Option<u64>,
}

impl Subject {
    fn of(named: &Named) -> Subject {
        Subject { file: Some(named.record.file), paths: vec![named.path.clone()], bytes: None }
    }
}
