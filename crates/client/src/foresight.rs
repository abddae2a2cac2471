//! What one handle will be asked for next: the desired section of its operations, cut to the stripe that is asked.

use ccpfs_access::Detector;
use ccpfs_region::{Region, SECTIONS_MAX, Section};
use ccpfs_types::{Extent, Layout};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

/// Rounds of the stripes that are tried, the most first, where a whole section takes too many sections on a stripe.
const ROUNDS: [u64; 4] = [120, 60, 30, 10];

/// The operations of one kind, reads or writes, of one handle.
pub(crate) struct Foresight {
    /// Whether to look at all.
    looks: bool,
    detector: Mutex<Detector>,
    /// Nothing is desired beyond what is needed, whatever is to be seen.
    exact: AtomicBool,
}

impl Foresight {
    /// One that looks for sections, or one that does not.
    pub(crate) fn new(looks: bool) -> Foresight {
        Foresight { looks, detector: Mutex::default(), exact: AtomicBool::new(false) }
    }

    /// Says whether nothing may be desired beyond what is needed.
    pub(crate) fn set_exact(&self, exact: bool) {
        self.exact.store(exact, Ordering::Relaxed);
    }

    /// Whether nothing may be desired beyond what is needed.
    pub(crate) fn is_exact(&self) -> bool {
        self.exact.load(Ordering::Relaxed)
    }

    /// An operation begins. Where two threads use the handle at once, one of them may go unseen.
    pub(crate) fn saw(&self, operation: Extent) {
        if self.looks
            && let Ok(mut detector) = self.detector.try_lock()
        {
            detector.step(operation);
        }
    }

    fn detector(&self) -> MutexGuard<'_, Detector> {
        self.detector.lock().expect("no code panics under this lock")
    }

    /// Whether there may be something to desire: quicker than to look.
    pub(crate) fn is_sure(&self) -> bool {
        self.looks && self.detector().is_sure()
    }

    /// Whether some of the operations to come will lie on two stripes, and need a mode for that.
    pub(crate) fn crosses_stripes(&self, layout: Layout) -> bool {
        let unit = layout.stripe_bytes();
        let fits = |section: &Section| {
            // Where every piece begins at the same place of a part of a unit, all lie as this one.
            let strides = || section.levels().iter().map(|level| level.stride());
            let part = strides().filter(|stride| unit.is_multiple_of(*stride)).fold(unit, u64::min);
            section.offset() % part + section.length() <= part
                && strides().all(|stride| stride.is_multiple_of(part))
        };
        layout.stripe_count() > 1
            && self.looks
            && self.detector().desired().is_some_and(|section| !fits(&section))
    }

    /// What would be welcome beyond the bytes `required` of a stripe, in the stripe's offsets.
    pub(crate) fn desired(&self, layout: Layout, stripe: u32, required: Extent) -> Option<Region> {
        let section = self.detector().desired()?;
        let desired = on_stripe(section, layout, stripe, required)?;
        desired.contains_region(&required.into()).then_some(desired)
    }
}

/// The bytes of a section on a stripe, or, where that takes too many sections and too many steps, those near `required`.
fn on_stripe(section: Section, layout: Layout, stripe: u32, required: Extent) -> Option<Region> {
    if let Ok(found) = Region::of_stripe(vec![section], &layout, stripe) {
        return found;
    }
    let region = Region::from(section);
    if let Ok(found) = region.on_stripe(&layout, stripe, SECTIONS_MAX) {
        return found;
    }
    let round = layout.stripe_bytes() * u64::from(layout.stripe_count());
    let start = layout.file_offset(stripe, required.start());
    let end = layout.file_offset(stripe, required.end() - 1) + 1;
    let upwards = section.bounds().end() > end;
    let near = |rounds: u64| {
        let reach = rounds * round;
        let window = match upwards {
            true => Extent::new(start, end.saturating_add(reach)),
            false => Extent::new(start.saturating_sub(reach), end),
        };
        region.in_extent(window?)?.on_stripe(&layout, stripe, SECTIONS_MAX).ok().flatten()
    };
    ROUNDS.into_iter().find_map(near)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ccpfs_region::UNBOUNDED;

    #[test]
    fn a_section_is_cut_to_the_stripe_and_to_what_a_lock_can_say() {
        let layout = Layout::new(4, 1 << 20).unwrap();
        let aligned = Section::new(65_536, 65_536, &[(4 * 65_536, UNBOUNDED)]).unwrap();
        let required = Extent::with_length(65_536, 65_536).unwrap();
        let desired = on_stripe(aligned, layout, 2, required).unwrap();
        assert_eq!(desired.to_string(), "65536+65536 each 262144 x ..");
        // Records that never come back to the same place of a unit.
        let odd = Section::new(47_008, 47_008, &[(4 * 47_008, UNBOUNDED)]).unwrap();
        let desired = on_stripe(odd, layout, 0, Extent::with_length(47_008, 47_008).unwrap()).unwrap();
        assert_eq!(desired.to_string(), "47008+47008 each 188032 x .. on 0 of 4 x 1048576");
        let whole = Region::from(odd);
        for piece in desired.pieces().take(1000) {
            let start = layout.file_offset(0, piece.start());
            assert!(whole.contains(start) && whole.contains(start + piece.length() - 1), "{piece}");
        }
    }

    #[test]
    fn pieces_that_will_lie_on_two_stripes_are_seen_before_they_come() {
        let crosses = |offset: u64, length: u64, stride: u64| {
            let foresight = Foresight::new(true);
            (0..3).for_each(|k| foresight.saw(Extent::with_length(offset + k * stride, length).unwrap()));
            foresight.crosses_stripes(Layout::new(4, 1 << 20).unwrap())
        };
        assert!(crosses(0, 47_008, 188_032));
        assert!(crosses(1_000_000, 65_536, 262_144));
        assert!(!crosses(65_536, 65_536, 262_144) && !crosses(0, 1 << 20, 4 << 20));
    }

    #[test]
    fn a_handle_that_goes_backwards_desires_what_lies_below() {
        let foresight = Foresight::new(true);
        let layout = Layout::new(2, 4096).unwrap();
        let at = |k: u64| Extent::with_length(k * 8192, 1024).unwrap();
        for k in (7..10).rev() {
            assert!(!foresight.is_sure());
            foresight.saw(at(k));
        }
        let required = Extent::with_length(7 * 4096, 1024).unwrap();
        let desired = foresight.desired(layout, 0, required).unwrap();
        assert_eq!(desired.to_string(), "0+1024 each 4096 x 8");
        assert_eq!(foresight.desired(layout, 1, required), None);
    }
}
