//! Lists of extents as regions that say them in few words.
//!
//! MPI's datatypes arrive here as the pieces that they select, because every constructor, and every part of a nest of them that one
//! access takes, comes to that. The strides are found again: pieces of one length that lie equally far apart are a section, sections of
//! one form that lie equally far apart one with a level more. It takes time with the pieces, as copying them does, and never more.

use ccpfs_client::{Region, Section};
use ccpfs_types::Extent;

/// Most levels of a section that are looked for.
const LEVELS_MAX: usize = 7;

/// Pieces of one length, repeated by levels of (stride, count).
#[derive(Clone, Debug, PartialEq, Eq)]
struct Form {
    offset: u64,
    length: u64,
    levels: Vec<(u64, u64)>,
}

impl Form {
    fn is_like(&self, other: &Form) -> bool {
        self.length == other.length && self.levels == other.levels
    }
}

/// The bytes of all `extents`, which are sorted and do not overlap. `None` if there are none.
pub(crate) fn region_of(extents: &[Extent]) -> Option<Region> {
    let joined = joined(extents);
    // Where there are too many sections, or their overlaps are hard to see, the list says the same.
    Region::from_sections(sections_of(&joined)).ok().or_else(|| Region::from_extents(joined))
}

/// As [`region_of`], if at most `sections_max` sections say it.
pub(crate) fn simple_region_of(extents: &[Extent], sections_max: usize) -> Option<Region> {
    let sections = sections_of(&joined(extents));
    if sections.len() > sections_max {
        return None;
    }
    Region::from_sections(sections).ok()
}

/// Extents that touch as one.
fn joined(extents: &[Extent]) -> Vec<Extent> {
    let mut joined: Vec<Extent> = Vec::new();
    for extent in extents {
        match joined.last_mut() {
            Some(last) if last.end() == extent.start() => *last = last.hull(*extent),
            Some(_) | None => joined.push(*extent),
        }
    }
    joined
}

fn sections_of(extents: &[Extent]) -> Vec<Section> {
    let piece =
        |extent: &Extent| Form { offset: extent.start(), length: extent.length(), levels: Vec::new() };
    let mut forms: Vec<Form> = extents.iter().map(piece).collect();
    for _ in 0..LEVELS_MAX {
        let nested = nest(&forms);
        if nested.len() == forms.len() {
            break;
        }
        forms = nested;
    }
    forms.iter().filter_map(|form| Section::new(form.offset, form.length, &form.levels).ok()).collect()
}

/// Runs of two and more forms that are alike and lie equally far apart become one with a level more.
fn nest(forms: &[Form]) -> Vec<Form> {
    let mut nested = Vec::new();
    let mut at = 0;
    while let Some(first) = forms.get(at) {
        let run = run_length(&forms[at..]);
        let mut form = first.clone();
        if run > 1 {
            form.levels.push((forms[at + 1].offset - first.offset, run as u64));
        }
        nested.push(form);
        at += run;
    }
    nested
}

/// How many of the first forms are alike and lie equally far apart, at least 1.
fn run_length(forms: &[Form]) -> usize {
    let [first, second, ..] = forms else { return forms.len() };
    if !first.is_like(second) {
        return 1;
    }
    let stride = second.offset - first.offset;
    let goes_on = |pair: &&[Form]| pair[0].is_like(&pair[1]) && pair[1].offset - pair[0].offset == stride;
    1 + forms.windows(2).take_while(goes_on).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extents(list: &[(u64, u64)]) -> Vec<Extent> {
        list.iter().map(|(start, length)| Extent::new(*start, start + length).expect("not empty")).collect()
    }

    /// Rows of `counts[0]` pieces of 8 bytes, planes of rows, and so on.
    fn array(counts: &[(u64, u64)]) -> Vec<Extent> {
        let mut starts = vec![64];
        for (stride, count) in counts {
            starts = (0..*count)
                .flat_map(|k| starts.iter().map(move |start| start + k * stride).collect::<Vec<_>>())
                .collect();
        }
        starts.iter().map(|start| Extent::new(*start, start + 8).expect("not empty")).collect()
    }

    #[test]
    fn an_array_of_three_dimensions_is_one_section() {
        let pieces = array(&[(32, 5), (1024, 7), (16384, 3)]);
        let region = region_of(&pieces).expect("not empty");
        assert_eq!(region.sections().count(), 1, "{region}");
        assert!(pieces.iter().all(|piece| region.contains(piece.start())));
        assert_eq!(region.length_bytes(), 8 * 5 * 7 * 3);
    }

    #[test]
    fn a_part_of_an_array_that_starts_and_ends_within_rows_is_few_sections() {
        let pieces = array(&[(32, 50), (4096, 700)]);
        let part = &pieces[13..50 * 699 - 7];
        let region = region_of(part).expect("not empty");
        assert!(region.sections().count() <= 4, "{region}");
        assert_eq!(region.length_bytes(), 8 * part.len() as u64);
        assert!(part.iter().all(|piece| region.contains(piece.start())));
    }

    #[test]
    fn pieces_without_any_order_are_a_list_of_them() {
        let mut at = 0;
        let list: Vec<(u64, u64)> = (0..1000_u64)
            .map(|k| (k * k % 61 + 1, k * k % 17 + 1))
            .map(|(gap, length)| {
                at += gap + length;
                (at - length, length)
            })
            .collect();
        assert_eq!(simple_region_of(&extents(&list), 8), None);
        let region = region_of(&extents(&list)).expect("not empty");
        assert_eq!(region.length_bytes(), list.iter().map(|(_, length)| length).sum::<u64>());
        assert!(
            list.iter().all(|(start, length)| region.contains(*start) && region.contains(start + length - 1))
        );
    }

    #[test]
    fn pieces_that_touch_are_one_extent() {
        let region = region_of(&extents(&[(0, 10), (10, 5), (15, 1)])).expect("not empty");
        assert_eq!(region.as_extent(), Extent::new(0, 16));
        assert_eq!(region_of(&[]), None);
    }
}
