//! The layout of an orphan of which nothing is known but its stripes.

use ccpfs_types::Layout;
use ccpfs_types::limits::STRIPES_MAX;
use std::collections::BTreeMap;

/// A layout and how far it can be trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Guess {
    pub(crate) layout: Layout,
    /// Why it may be wrong; `None` if what is there fits.
    pub(crate) doubt: Option<String>,
}

/// The layout with units of `unit_bytes` and as many stripes as the highest number says. `lengths` has the length of each stripe that
/// is there, and is not empty. `None` if there is no such layout.
pub(crate) fn guess(lengths: &BTreeMap<u32, u64>, unit_bytes: u64) -> Option<Guess> {
    let count = lengths.keys().next_back()?.checked_add(1).filter(|count| *count <= STRIPES_MAX)?;
    let layout = Layout::new(count, unit_bytes)?;
    Some(Guess { layout, doubt: doubt(layout, lengths) })
}

/// A file without holes fills all stripes but the last one to full units.
fn doubt(layout: Layout, lengths: &BTreeMap<u32, u64>) -> Option<String> {
    if layout.stripe_count() == 1 {
        return None;
    }
    let size = lengths.iter().map(|(stripe, length)| layout.file_size(*stripe, *length)).max()?;
    let fits = |stripe: u32| lengths.get(&stripe).copied().unwrap_or(0) == layout.stripe_length(stripe, size);
    let unfit = (0..layout.stripe_count()).filter(|stripe| !fits(*stripe)).count();
    (unfit > 0).then(|| {
        let unit = ccpfs_config::format_bytes(layout.stripe_bytes());
        format!(
            "{unfit} of {} stripes end elsewhere than with units of {unit} and without holes",
            layout.stripe_count()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(layout: Layout, size: u64) -> BTreeMap<u32, u64> {
        let length = |stripe| (stripe, layout.stripe_length(stripe, size));
        (0..layout.stripe_count()).map(length).filter(|(_, length)| *length > 0).collect()
    }

    #[test]
    fn what_a_dense_file_left_is_recognised_and_another_unit_is_doubted() {
        let layout = Layout::new(3, 65_536).unwrap();
        for size in [200_000, 1 << 20, 196_608] {
            let found = guess(&lengths(layout, size), 65_536).unwrap();
            assert_eq!(found, Guess { layout, doubt: None });
        }
        // Only where full units come before the last one: 200,000 bytes fit units of 4 KiB as well.
        assert!(guess(&lengths(layout, 250_000), 4096).unwrap().doubt.is_some());
        assert!(guess(&lengths(layout, 1 << 20), 1 << 20).unwrap().doubt.is_some());
    }

    #[test]
    fn one_stripe_needs_no_unit() {
        assert_eq!(guess(&BTreeMap::from([(0, 12_345)]), 4096).unwrap().doubt, None);
    }

    #[test]
    fn a_missing_stripe_is_doubted_and_impossible_numbers_are_refused() {
        let layout = Layout::new(3, 4096).unwrap();
        let mut found = lengths(layout, 100_000);
        found.remove(&1);
        assert!(guess(&found, 4096).unwrap().doubt.is_some());
        assert_eq!(guess(&BTreeMap::from([(u32::MAX, 1)]), 4096), None);
        assert_eq!(guess(&BTreeMap::new(), 4096), None);
    }
}
