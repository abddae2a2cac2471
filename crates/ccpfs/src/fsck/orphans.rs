//! Data that no stub names, and notes about removed files.

use super::check::{Check, Subject};
use super::guess::guess;
use super::report::{Outcome, Trouble, size, time};
use super::stock::{self, Stores, Unnamed};
use super::walk::{self, Names};
use ccpfs_client::{Stub, StubState};
use ccpfs_config::format_bytes;
use ccpfs_types::{FileId, ResourceId};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Where orphans become files again.
const LOST_AND_FOUND: &str = "lost+found";

/// How an orphan was laid out, as far as known.
struct Shape {
    record: Stub,
    /// In words, and where that is from.
    what: String,
    /// Whether a file with this layout is certain or likely to be the one that was.
    fits: bool,
}

/// Looks at what is not named, after everything named was found. `notes` were read before that.
pub(crate) fn check(check: &mut Check, names: &Names, stores: &Stores, notes: &BTreeMap<FileId, Stub>) {
    if !stores.unnamed.is_empty() {
        let hindrance = hindrance(check, names, stores);
        // Before the names: whoever has an unnamed file open may still give it one.
        let open: BTreeSet<FileId> =
            wanted(names, stores).filter(|file| check.client.is_in_use(*file) == Some(true)).collect();
        let wanted: BTreeSet<FileId> = wanted(names, stores).filter(|file| !open.contains(file)).collect();
        check.report.step("looking for the names of what seems to have none");
        let second = walk::look_again(&check.client, &check.namespace, &wanted);
        let unsettled = (!second.certain)
            .then(|| "names were changed all the time, or could not be looked at".to_owned());
        let hindrance = hindrance.or(unsettled);
        for file in open {
            let space = size(stores.unnamed[&file].stored_bytes());
            check.report.remark(format!("{file}: removed and still open somewhere: {space}"));
        }
        for file in wanted.difference(&second.named) {
            let unnamed = &stores.unnamed[file];
            if is_still_there(check, *file, unnamed) {
                orphan(check, (*file, unnamed), notes.get(file), names, hindrance.as_deref());
            }
        }
    }
    for (file, record) in notes {
        if !stores.unnamed.contains_key(file) {
            note(check, record, names, stores);
        }
    }
}

/// The files that nothing names, also no stub of another cluster.
fn wanted(names: &Names, stores: &Stores) -> impl Iterator<Item = FileId> {
    let foreign: BTreeSet<FileId> =
        names.damaged.iter().filter(|stub| stub.is_foreign).filter_map(|stub| stub.perhaps).collect();
    stores.unnamed.keys().copied().filter(move |file| !foreign.contains(file))
}

/// Why nobody can be certain that what has no name has none.
fn hindrance(check: &Check, names: &Names, stores: &Stores) -> Option<String> {
    if !stores.silent.is_empty() || !check.report.has_seen_all() {
        return Some("not everything could be looked at".to_owned());
    }
    if check.wish.delete_orphans && !names.damaged.is_empty() {
        return Some("the data of a damaged stub may be among them: restore or remove that first".to_owned());
    }
    None
}

/// Whether the servers have it still, as far as they can be asked.
fn is_still_there(check: &mut Check, file: FileId, unnamed: &Unnamed) -> bool {
    let Some((stripe, (target, _))) = unnamed.stripes.first_key_value() else { return false };
    match stock::find(&check.client, *target, ResourceId { file, stripe: *stripe }) {
        Ok(found) => found.is_some(),
        Err(error) => {
            check.report.unseen(format!("data of {file}"), error);
            false
        }
    }
}

fn orphan(
    check: &mut Check,
    (file, unnamed): (FileId, &Unnamed),
    note: Option<&Stub>,
    names: &Names,
    hindrance: Option<&str>,
) {
    let bytes = unnamed.stored_bytes();
    let (count, space, when) = (unnamed.stripes.len(), size(bytes), time(unnamed.modified_ns()));
    let is_known = check.client.is_in_use(file).is_some();
    let shape = shape(check, file, unnamed, note);
    let layout = shape.as_ref().map_or_else(|| "no layout fits".to_owned(), |shape| shape.what.clone());
    let damaged = names.damaged.iter().find(|damaged| damaged.perhaps == Some(file));
    let of = damaged.map(|found| format!("; perhaps the data of {}", found.path.display()));
    let what = format!("{space} in {count} stripes, last written {when}; {layout}{}", of.unwrap_or_default());
    let hindrance = hindrance.or_else(|| {
        (!is_known).then_some("there is no registry of open files: nobody knows whether it is in use")
    });
    let outcome = match hindrance {
        Some(why) => Outcome::Left(why.to_owned()),
        None if check.wish.delete_orphans => remove(check, file, unnamed, note.is_some()),
        None if check.wish.repair => link(check, shape),
        None => Outcome::Left("--repair links it into lost+found, --delete-orphans removes it".to_owned()),
    };
    let subject = Subject { file: Some(file), paths: Vec::new(), bytes: Some(bytes) };
    check.found(Trouble::Orphan, subject, what, outcome);
}

/// The layout: as noted when the file was removed, else as the stripes that are there suggest.
fn shape(check: &Check, file: FileId, unnamed: &Unnamed, note: Option<&Stub>) -> Option<Shape> {
    let state = StubState::Unsealed { virgin: false, sole: false };
    if let Some(note) = note {
        let layout = note.layout;
        let (count, unit) = (layout.stripe_count(), format_bytes(layout.stripe_bytes()));
        let what = format!("{count} stripes of {unit}, as noted when it lost its name");
        let fits = unnamed.stripes.keys().all(|stripe| *stripe < count);
        return Some(Shape { record: note.with(state), what, fits });
    }
    let (unit_bytes, told) = match check.wish.stripe_bytes {
        Some(bytes) => (bytes, true),
        None => (check.client.config().layout.stripe_bytes(), false),
    };
    let lengths = unnamed.stripes.iter().map(|(stripe, (_, found))| (*stripe, found.length_bytes)).collect();
    let guess = guess(&lengths, unit_bytes)?;
    let targets = u32::try_from(check.client.config().targets().len()).ok()?;
    let record = Stub { file, layout: guess.layout, targets, state };
    let (count, unit) = (guess.layout.stripe_count(), format_bytes(unit_bytes));
    let source = if told { "--stripe-size" } else { "the configured stripe size" };
    let mut what = format!("taken for {count} stripes of {unit} (by the highest stripe, and {source})");
    let fits = told || guess.doubt.is_none();
    if let Some(doubt) = guess.doubt {
        what = format!("{what}, which is doubtful: {doubt}");
    }
    Some(Shape { record, what, fits })
}

/// Gives an orphan a name.
fn link(check: &mut Check, shape: Option<Shape>) -> Outcome {
    let Some(shape) = shape.filter(|shape| shape.fits) else {
        return Outcome::Left("say --stripe-size to link it all the same".to_owned());
    };
    let folder = check.namespace.join(LOST_AND_FOUND);
    if let Err(error) = make_folder(&folder) {
        return Outcome::Failed(format!("{}: {error}", folder.display()));
    }
    let path: PathBuf = folder.join(shape.record.file.to_string());
    match check.client.adopt(shape.record, &path) {
        Ok(Some(contents)) => Outcome::Mended(format!("it is {} of {}", path.display(), size(contents.size))),
        Ok(None) => Outcome::Left("somebody has it open".to_owned()),
        Err(error) if error.to_errno() == libc::ESTALE => {
            Outcome::Left("a server has removed its part already: only --delete-orphans is left".to_owned())
        }
        Err(error) => Outcome::Failed(error.to_string()),
    }
}

fn make_folder(folder: &Path) -> std::io::Result<()> {
    match std::fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

/// Removes the data of an orphan.
fn remove(check: &mut Check, file: FileId, unnamed: &Unnamed, noted: bool) -> Outcome {
    for (target, stripes) in unnamed.by_target() {
        match check.client.remove_objects(target, file, &stripes) {
            Ok(true) => {}
            Ok(false) => return Outcome::Left("somebody has it open".to_owned()),
            Err(error) => return Outcome::Failed(error.to_string()),
        }
    }
    if noted && let Err(error) = check.client.forget_orphan(file) {
        return Outcome::Failed(error.to_string());
    }
    Outcome::Mended(format!("removed: {}", size(unnamed.stored_bytes())))
}

/// A note about a file that has no data, or is named again.
fn note(check: &mut Check, record: &Stub, names: &Names, stores: &Stores) {
    let file = record.file;
    let named = names.files.get(&file);
    if named.is_none() {
        let resource = |stripe| ResourceId { file, stripe };
        let mut targets = (0..record.layout.stripe_count()).map(|s| check.client.target_of(resource(s)));
        if targets.any(|target| stores.silent.contains(&target))
            || check.client.is_in_use(file) != Some(false)
        {
            return;
        }
    }
    let what = match named {
        Some(_) => "it is noted as removed and has a name".to_owned(),
        None => "it is noted as removed, and no server has anything of it".to_owned(),
    };
    let outcome = if !check.wish.repair {
        Outcome::Left("--repair removes the note".to_owned())
    } else {
        match check.client.forget_orphan(file) {
            Ok(true) => Outcome::Mended("the note is removed".to_owned()),
            Ok(false) => Outcome::Left("somebody has the file open".to_owned()),
            Err(error) => Outcome::Failed(error.to_string()),
        }
    };
    let paths = named.map(|named| named.path.clone()).into_iter().collect();
    check.found(Trouble::Note, Subject { file: Some(file), paths, bytes: None }, what, outcome);
}
