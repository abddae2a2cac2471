//! What servers have, page by page, put beside what names say.

use super::report::{Counts, Report};
use super::walk::Named;
use ccpfs_client::{Client, Contents, FsError, StoredStripe};
use ccpfs_types::limits::LIST_STRIPES_MAX;
use ccpfs_types::{FileId, Layout, ResourceId};
use std::collections::{BTreeMap, BTreeSet};

/// Blocks that records count in, bytes.
const BLOCK_BYTES: u64 = 4096;

/// What servers have of one file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stock {
    /// The size of the file by the lengths of its stripes.
    size: u64,
    /// All lengths together.
    length_bytes: u64,
}

impl Stock {
    fn add(&mut self, layout: Layout, stripe: &StoredStripe) {
        let end = layout.file_size(stripe.resource.stripe, stripe.length_bytes);
        self.size = self.size.max(end);
        self.length_bytes = self.length_bytes.saturating_add(stripe.length_bytes);
    }

    /// Whether a record says the same.
    pub(crate) const fn fits(&self, contents: &Contents) -> bool {
        self.size == contents.size && self.length_bytes.div_ceil(BLOCK_BYTES) == contents.blocks
    }
}

/// Stripes of a file of which nothing is named.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Unnamed {
    /// By number of the stripe, with the shard that has it.
    pub(crate) stripes: BTreeMap<u32, (u32, StoredStripe)>,
}

impl Unnamed {
    /// Space that it takes on the servers.
    pub(crate) fn stored_bytes(&self) -> u64 {
        self.stripes.values().map(|(_, stripe)| stripe.stored_bytes).sum()
    }

    /// When it was last written.
    pub(crate) fn modified_ns(&self) -> i64 {
        self.stripes.values().map(|(_, stripe)| stripe.modified_ns).max().unwrap_or(0)
    }

    /// The shards, each with the stripes it has.
    pub(crate) fn by_target(&self) -> BTreeMap<u32, Vec<u32>> {
        let mut targets: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (stripe, (target, _)) in &self.stripes {
            targets.entry(*target).or_default().push(*stripe);
        }
        targets
    }
}

/// What was found on the servers and does not belong to the files that are named.
#[derive(Debug, Default)]
pub(crate) struct Stores {
    pub(crate) unnamed: BTreeMap<FileId, Unnamed>,
    /// Stripes of named files that these do not have, with the shard.
    pub(crate) beyond: Vec<(u32, StoredStripe)>,
    /// Stripes on another shard than theirs, with the shard.
    pub(crate) misplaced: Vec<(u32, StoredStripe)>,
    /// Shards that could not be asked.
    pub(crate) silent: BTreeSet<u32>,
}

/// Asks all shards what they have. `complete` says that `files` are all there are; otherwise what is not among them is passed over.
pub(crate) fn take(
    client: &Client,
    files: &mut BTreeMap<FileId, Named>,
    complete: bool,
    report: &mut Report,
) -> Stores {
    let mut stores = Stores::default();
    for (target, address) in (0..).zip(client.config().targets()) {
        let mut after = None;
        loop {
            report.step(format!("{address}: {} stripes so far", report.counts.stripes));
            let page = match client.list_objects(target, after, LIST_STRIPES_MAX) {
                Ok(page) => page,
                Err(error) => {
                    stores.silent.insert(target);
                    report.unseen(format!("server {address}"), error);
                    break;
                }
            };
            count(&mut report.counts, &page.stripes);
            for stripe in &page.stripes {
                stores.sort(client, (target, *stripe), files, complete);
            }
            after = page.stripes.last().map(|stripe| stripe.resource).or(after);
            if !page.more || page.stripes.is_empty() {
                break;
            }
        }
    }
    stores
}

fn count(counts: &mut Counts, stripes: &[StoredStripe]) {
    for stripe in stripes {
        counts.stripes += 1;
        counts.stored_bytes = counts.stored_bytes.saturating_add(stripe.stored_bytes);
    }
}

impl Stores {
    fn sort(
        &mut self,
        client: &Client,
        (target, stripe): (u32, StoredStripe),
        files: &mut BTreeMap<FileId, Named>,
        complete: bool,
    ) {
        let resource = stripe.resource;
        match files.get_mut(&resource.file) {
            None if !complete => {}
            Some(_) | None if client.target_of(resource) != target => self.misplaced.push((target, stripe)),
            None => {
                let unnamed = self.unnamed.entry(resource.file).or_default();
                unnamed.stripes.insert(resource.stripe, (target, stripe));
            }
            Some(named) if resource.stripe < named.record.layout.stripe_count() => {
                named.stock.add(named.record.layout, &stripe);
            }
            Some(_) => self.beyond.push((target, stripe)),
        }
    }
}

/// Whether a shard has this stripe at this moment.
pub(crate) fn find(
    client: &Client,
    target: u32,
    resource: ResourceId,
) -> Result<Option<StoredStripe>, FsError> {
    let page = client.list_objects(target, before(resource), 1)?;
    Ok(page.stripes.first().copied().filter(|found| found.resource == resource))
}

/// The last name before this one.
fn before(resource: ResourceId) -> Option<ResourceId> {
    if let Some(stripe) = resource.stripe.checked_sub(1) {
        return Some(ResourceId { file: resource.file, stripe });
    }
    let file = u128::from_be_bytes(resource.file.0).checked_sub(1)?;
    Some(ResourceId { file: FileId(file.to_be_bytes()), stripe: u32::MAX })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(last: u8, stripe: u32) -> ResourceId {
        let mut file = [0; 16];
        (file[3], file[15]) = (7, last);
        ResourceId { file: FileId(file), stripe }
    }

    #[test]
    fn nothing_lies_between_a_name_and_the_one_before_it() {
        assert_eq!(before(resource(1, 5)), Some(resource(1, 4)));
        assert_eq!(before(resource(1, 0)), Some(resource(0, u32::MAX)));
        assert_eq!(before(ResourceId { file: FileId([0; 16]), stripe: 0 }), None);
    }

    #[test]
    fn stripes_add_up_to_what_a_record_says() {
        let layout = Layout::new(2, 4096).unwrap();
        let stripe = |number, length_bytes| StoredStripe {
            resource: resource(1, number),
            length_bytes,
            stored_bytes: 0,
            modified_ns: 0,
        };
        let mut stock = Stock::default();
        let says = |size, blocks| Contents { size, blocks, virgin: false };
        assert!(stock.fits(&says(0, 0)));
        stock.add(layout, &stripe(0, 4096));
        stock.add(layout, &stripe(1, 100));
        assert!(stock.fits(&says(4196, 2)));
        assert!(!stock.fits(&says(4197, 2)) && !stock.fits(&says(4196, 3)));
    }
}
