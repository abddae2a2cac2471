//! What of a map lies in a region: the pieces of the one and the entries of the other are leapt over by turns.

use ccpfs_region::Region;
use ccpfs_types::{Extent, ExtentMap};

/// What lies in `region` and in `within`, in order, clipped to both. Cost: with what is found and with the gaps of either that hold
/// something of the other, whatever the number of pieces or entries.
pub(crate) fn parts<'a, V: Copy + PartialEq>(
    map: &'a ExtentMap<V>,
    region: &'a Region,
    within: Extent,
) -> impl Iterator<Item = (Extent, V)> + 'a {
    let plain = region.as_extent();
    let clipped = plain.and_then(|extent| extent.intersection(within));
    let leaping =
        plain.is_none().then_some(Leaps { map, region, next: Extent::new(within.start(), within.end()) });
    clipped.into_iter().flat_map(|extent| map.within(extent)).chain(leaping.into_iter().flatten())
}

struct Leaps<'a, V> {
    map: &'a ExtentMap<V>,
    region: &'a Region,
    /// Where to look on.
    next: Option<Extent>,
}

impl<V: Copy + PartialEq> Iterator for Leaps<'_, V> {
    type Item = (Extent, V);

    fn next(&mut self) -> Option<(Extent, V)> {
        loop {
            let rest = self.next.take()?;
            let (entry, value) = self.map.within(rest).next()?;
            let piece = self.region.piece_from(entry.start())?;
            match entry.intersection(piece) {
                Some(part) => {
                    self.next = Extent::new(part.end(), rest.end());
                    return Some((part, value));
                }
                None => self.next = Extent::new(piece.start(), rest.end()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use ccpfs_region::Section;

    #[test]
    fn the_parts_of_a_section_are_what_its_pieces_and_the_entries_share() {
        let extent = |start, end| Extent::new(start, end).unwrap();
        let mut map = ExtentMap::new();
        map.insert(extent(5, 32), 'a');
        map.insert(extent(32, 34), 'b');
        map.insert(extent(95, 1000), 'c');
        let region = Region::from(Section::new(0, 10, &[(30, 4)]).unwrap());
        let found: Vec<_> = parts(&map, &region, extent(0, 96)).collect();
        assert_eq!(
            found,
            [(extent(5, 10), 'a'), (extent(30, 32), 'a'), (extent(32, 34), 'b'), (extent(95, 96), 'c')]
        );
        assert_eq!(parts(&map, &region, extent(40, 90)).next(), None);
    }
}
