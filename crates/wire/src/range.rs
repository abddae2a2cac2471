//! How regions and the terms of requests are packed.

use crate::codec::{DecodeError, Field, Reader};
use alloc::vec::Vec;
use ccpfs_region::{DEPTH_MAX, Region, SECTIONS_MAX, Section};
use ccpfs_types::{Extent, GroupId, Layout, Part, Terms};

/// Kinds of regions.
const EXTENT: u8 = 0;
const LIST: u8 = 1;
const SECTIONS: u8 = 2;
const STRIPED: u8 = 3;

/// A region takes a kind, then an extent; or a count and as many extents or sections, in normal form. Where the sections are those of
/// a file, the layout of the file and the number of the stripe come first.
///
/// What is sent is lockable ([`Region::is_lockable`]); what arrives is refused if it is not.
impl Field for Region {
    const BYTES_MIN: usize = 17;

    fn put(&self, out: &mut Vec<u8>) {
        if let Some(extent) = self.as_extent() {
            out.push(EXTENT);
            return extent.put(out);
        }
        let list = self.sections().all(|section| section.as_extent().is_some()) && self.stripe().is_none();
        match self.stripe() {
            Some((layout, stripe)) => {
                out.push(STRIPED);
                layout.stripe_count().put(out);
                layout.stripe_bytes().put(out);
                stripe.put(out);
            }
            None => out.push(if list { LIST } else { SECTIONS }),
        }
        let count =
            u8::try_from(self.sections().count()).ok().filter(|count| usize::from(*count) <= SECTIONS_MAX);
        out.push(count.expect("whoever asks for a lock has seen that its region is lockable"));
        for section in self.sections() {
            match section.as_extent().filter(|_| list) {
                Some(extent) => extent.put(out),
                None => put_section(&section, out),
            }
        }
    }

    fn take(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let kind = u8::take(reader)?;
        if kind == EXTENT {
            return Ok(Extent::take(reader)?.into());
        }
        let stripe = if kind == STRIPED { Some(take_stripe(reader)?) } else { None };
        let count = usize::from(u8::take(reader)?);
        if count > SECTIONS_MAX {
            return Err(DecodeError::BadValue("number of sections"));
        }
        if count > reader.left() / Extent::BYTES_MIN {
            return Err(DecodeError::Truncated);
        }
        let mut sections = Vec::with_capacity(count);
        for _ in 0..count {
            sections.push(match kind {
                LIST => Section::from_extent(Extent::take(reader)?),
                SECTIONS | STRIPED => take_section(reader)?,
                _ => return Err(DecodeError::BadValue("region kind")),
            });
        }
        if let Some((layout, stripe)) = stripe {
            let region = Region::of_stripe_in_normal_form(sections, &layout, stripe);
            return region.map_err(|_| DecodeError::BadValue("region"));
        }
        let lists = sections.iter().all(|section| section.as_extent().is_some());
        if lists != (kind == LIST) {
            return Err(DecodeError::BadValue("region kind"));
        }
        let region = Region::from_normal_form(sections).map_err(|_| DecodeError::BadValue("region"))?;
        if region.as_extent().is_some() { Err(DecodeError::BadValue("region kind")) } else { Ok(region) }
    }
}

/// The layout of a file, and one of its stripes.
fn take_stripe(reader: &mut Reader<'_>) -> Result<(Layout, u32), DecodeError> {
    let layout = Layout::new(u32::take(reader)?, u64::take(reader)?);
    let layout = layout.ok_or(DecodeError::BadValue("layout"))?;
    let stripe = u32::take(reader)?;
    if stripe < layout.stripe_count() { Ok((layout, stripe)) } else { Err(DecodeError::BadValue("stripe")) }
}

/// A section: number of levels, offset, length, then stride and count of each level, innermost first.
fn put_section(section: &Section, out: &mut Vec<u8>) {
    out.push(u8::try_from(section.levels().len()).expect("a section has few levels"));
    section.offset().put(out);
    section.length().put(out);
    for level in section.levels() {
        level.stride().put(out);
        level.count().put(out);
    }
}

fn take_section(reader: &mut Reader<'_>) -> Result<Section, DecodeError> {
    let depth = usize::from(u8::take(reader)?);
    let (offset, length) = (u64::take(reader)?, u64::take(reader)?);
    let mut levels = [(0, 0); DEPTH_MAX];
    let levels = levels.get_mut(..depth).ok_or(DecodeError::BadValue("number of levels"))?;
    for level in levels.iter_mut() {
        *level = (u64::take(reader)?, u64::take(reader)?);
    }
    let section = Section::new(offset, length, levels).map_err(|_| DecodeError::BadValue("section"))?;
    let same =
        section.levels().iter().map(|level| (level.stride(), level.count())).eq(levels.iter().copied());
    // The length of what goes on to the end of all files is not changed by normal form either.
    if same && section.length() == length { Ok(section) } else { Err(DecodeError::BadValue("section")) }
}

impl Field for Part {
    const BYTES_MIN: usize = 1;
    fn put(&self, out: &mut Vec<u8>) {
        out.push(match self {
            Part::Only => 0,
            Part::First => 1,
            Part::Next => 2,
        });
    }
    fn take(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match u8::take(reader)? {
            0 => Ok(Part::Only),
            1 => Ok(Part::First),
            2 => Ok(Part::Next),
            _ => Err(DecodeError::BadValue("part")),
        }
    }
}

impl Field for Terms {
    const BYTES_MIN: usize = 10;
    fn put(&self, out: &mut Vec<u8>) {
        self.try_only.put(out);
        self.part.put(out);
        self.group.put(out);
    }
    fn take(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (try_only, part) = (bool::take(reader)?, Part::take(reader)?);
        Ok(Terms { try_only, part, group: GroupId::take(reader)? })
    }
}
