//! Cutting a region of a file into the lock requests for it.

use ccpfs_config::LockKind;
use ccpfs_region::{Region, SECTIONS_MAX};
use ccpfs_types::{Extent, Layout, Part};

/// Most pieces of one request of the kind `list` (paper 001, 3.2).
const LIST_PIECES_MAX: usize = 64;

/// One lock that an operation needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// Of which stripe.
    pub(crate) stripe: u32,
    /// Its bytes, in the stripe's offsets. Bounds of several of one stripe do not overlap.
    pub(crate) region: Region,
    /// Which it is of the requests on this stripe.
    pub(crate) part: Part,
}

/// The locks for `region`, which ends before the end of all files, by stripe and offset. Those for several on one stripe are
/// extents that begin and end at multiples of `grain` bytes, where that is not 1: so do locks of such policies, and two must not touch.
pub(crate) fn cut(region: &Region, layout: Layout, kind: LockKind, grain: u64) -> Vec<Request> {
    let mut requests = Vec::new();
    for (stripe, _) in layout.stripe_hulls(region.bounds()) {
        let mut found = Vec::new();
        match kind {
            LockKind::Posix => found.extend(grains(region, layout, stripe, grain).map(Region::from)),
            LockKind::List => lists(grains(region, layout, stripe, grain), &mut found),
            LockKind::Datatype => descriptions(region, layout, stripe, &mut found),
        }
        if found.len() > 1 && grain > 1 && kind == LockKind::Datatype {
            found.clear();
            lists(grains(region, layout, stripe, grain), &mut found);
        }
        let several = found.len() > 1;
        requests.extend(found.into_iter().enumerate().map(|(at, region)| {
            let part = match (several, at) {
                (false, _) => Part::Only,
                (true, 0) => Part::First,
                (true, _) => Part::Next,
            };
            Request { stripe, region, part }
        }));
    }
    requests
}

/// The pieces of a stripe, grown to multiples of `grain` bytes where that is not 1; those that touch then are one.
fn grains(
    region: &Region,
    layout: Layout,
    stripe: u32,
    grain: u64,
) -> impl Iterator<Item = Extent> + use<'_> {
    let mut pieces = region.stripe_pieces(&layout, stripe).map(move |piece| piece.aligned(grain)).peekable();
    std::iter::from_fn(move || {
        let mut piece = pieces.next()?;
        while grain > 1
            && let Some(next) = pieces.next_if(|next| next.start() <= piece.end())
        {
            piece = piece.hull(next);
        }
        Some(piece)
    })
}

fn lists(pieces: impl Iterator<Item = Extent>, found: &mut Vec<Region>) {
    let mut list: Vec<Extent> = Vec::with_capacity(LIST_PIECES_MAX);
    for piece in pieces {
        if list.len() == LIST_PIECES_MAX {
            found.extend(Region::from_extents(std::mem::take(&mut list)));
        }
        list.push(piece);
    }
    found.extend(Region::from_extents(list));
}

/// The region's bytes on a stripe, as few sections as may be; where they are too many for one lock, halves of it.
fn descriptions(region: &Region, layout: Layout, stripe: u32, found: &mut Vec<Region>) {
    if let Ok(local) = region.on_stripe(&layout, stripe, SECTIONS_MAX) {
        found.extend(local);
        return;
    }
    // One piece is one extent on any stripe; so what is left has several, and both halves have fewer.
    let bounds = region.bounds();
    let middle = bounds.start() + bounds.length() / 2;
    for half in [Extent::new(bounds.start(), middle), Extent::new(middle, bounds.end())].into_iter().flatten()
    {
        if let Some(part) = region.in_extent(half) {
            descriptions(&part, layout, stripe, found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ccpfs_region::Section;

    fn section(offset: u64, length: u64, levels: &[(u64, u64)]) -> Region {
        Section::new(offset, length, levels).unwrap().into()
    }

    /// Numbers that look random, always the same ones.
    fn scattered(count: u64) -> Region {
        let mut at = 0;
        let extents = (0..count).map(|k| {
            at += 100 + k.wrapping_mul(0x9e37_79b9_7f4a_7c15) % 5000;
            Extent::with_length(at, 30 + k % 50).unwrap()
        });
        Region::from_extents(extents.collect()).unwrap()
    }

    #[test]
    fn a_strided_region_is_one_request_a_stripe_or_one_for_each_piece_or_64() {
        let layout = Layout::new(2, 65_536).unwrap();
        let region = section(0, 1, &[(64, 131_072)]);
        let count = |kind| cut(&region, layout, kind, 1).len();
        assert_eq!(
            (count(LockKind::Datatype), count(LockKind::List), count(LockKind::Posix)),
            (2, 2048, 131_072)
        );
        let parts: Vec<Part> =
            cut(&region, layout, LockKind::List, 1).iter().map(|request| request.part).collect();
        assert_eq!((parts[0], parts[1], parts[1024]), (Part::First, Part::Next, Part::First));
        assert_eq!(cut(&region, layout, LockKind::Datatype, 1)[1].part, Part::Only);
    }

    #[test]
    fn pieces_on_one_page_are_one_lock_where_locks_are_pages() {
        let layout = Layout::new(1, 1 << 20).unwrap();
        let region = section(100, 10, &[(1000, 3), (20_000, 4)]);
        let requests = cut(&region, layout, LockKind::Posix, 4096);
        let bounds: Vec<String> = requests.iter().map(|request| request.region.to_string()).collect();
        assert_eq!(bounds, ["0..4096", "16384..24576", "36864..45056", "57344..65536"]);
        assert_eq!(cut(&region, layout, LockKind::List, 4096).len(), 1);
        assert_eq!(cut(&region, layout, LockKind::Datatype, 4096)[0].region, region);
    }

    #[test]
    fn whatever_the_kind_the_requests_are_in_order_and_hold_every_byte_once() {
        let regions = [
            scattered(1000),
            section(47_008, 47_008, &[(188_032, 2000)]),
            section(3, 10, &[(16, 5), (100, 7), (5000, 90)]),
            Region::from_extents(vec![
                Extent::new(5, 300_000).unwrap(),
                Extent::new(400_001, 400_002).unwrap(),
            ])
            .unwrap(),
        ];
        for region in &regions {
            for layout in [(1, 1 << 20), (3, 4096), (4, 65_536)] {
                let layout = Layout::new(layout.0, layout.1).unwrap();
                for (_, kind) in LockKind::KINDS {
                    let requests = cut(region, layout, *kind, 1);
                    for pair in requests.windows(2) {
                        let ends = |request: &Request| (request.stripe, request.region.bounds());
                        let ((stripe, bounds), (next, after)) = (ends(&pair[0]), ends(&pair[1]));
                        assert!(stripe < next || stripe == next && bounds.end() <= after.start());
                    }
                    assert!(requests.iter().all(|request| request.region.is_lockable()));
                    let sum: u64 = requests.iter().map(|request| request.region.length_bytes()).sum();
                    assert_eq!(sum, region.length_bytes(), "{region} {kind}");
                    let inside = |request: &Request| {
                        request.region.pieces().all(|piece| {
                            region.contains(layout.file_offset(request.stripe, piece.start()))
                                && region.contains(layout.file_offset(request.stripe, piece.end() - 1))
                        })
                    };
                    assert!(requests.iter().all(inside), "{region} {kind}");
                }
            }
        }
    }
}
