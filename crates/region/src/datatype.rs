//! What MPI's type constructors say, as sections: contiguous, vector, indexed, subarray, struct, and their nests.
//!
//! A datatype is a selection of bytes relative to a start, with two bounds that say how far apart its copies lie. As MPI
//! demands it of file types, displacements are not negative and pieces do not overlap.

use crate::region::Region;
use crate::section::{RegionError, Section};
use crate::{DEPTH_MAX, PARTS_MAX};
use alloc::vec::Vec;
use ccpfs_types::Extent;

/// A datatype: the bytes that it selects, and its lower and upper bound.
///
/// Constructors return [`RegionError::Empty`] for a count or length of zero, [`RegionError::Overflow`] for what lies beyond the end of all files,
/// [`RegionError::TooMany`] if more than [`PARTS_MAX`] parts would be necessary and [`RegionError::TooDeep`] for too many levels that
/// are no multiples of each other. Whether different parts overlap is seen when it becomes a region.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Datatype {
    parts: Vec<Section>,
    lower: u64,
    upper: u64,
}

/// A field of [`Datatype::structure`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Field<'a> {
    /// Where it starts, in bytes.
    pub displacement_bytes: u64,
    /// How many copies of the type follow each other.
    pub count: u64,
    /// Its type.
    pub datatype: &'a Datatype,
}

/// In which order the elements of an array lie in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Order {
    /// The last dimension is contiguous (`MPI_ORDER_C`).
    C,
    /// The first dimension is contiguous (`MPI_ORDER_FORTRAN`).
    Fortran,
}

/// The extent in bytes of one dimension of an array.
#[derive(Clone, Copy, Debug)]
struct Dimension {
    size: u64,
    subsize: u64,
    start: u64,
}

impl Datatype {
    /// An elementary type of `length` bytes.
    ///
    /// # Errors
    /// [`RegionError::Empty`] for a length of zero.
    pub fn bytes(length: u64) -> Result<Datatype, RegionError> {
        Ok(Datatype { parts: Vec::from([Section::new(0, length, &[])?]), lower: 0, upper: length })
    }

    /// How far apart copies of the type lie, in bytes: from its lower to its upper bound.
    #[must_use]
    pub fn extent_bytes(&self) -> u64 {
        self.upper - self.lower
    }

    /// How many bytes the type selects.
    #[must_use]
    pub fn length_bytes(&self) -> u64 {
        self.parts.iter().map(Section::length_bytes).fold(0, u64::saturating_add)
    }

    /// How many sections say it, before those that go on with each other are joined.
    #[must_use]
    pub fn parts(&self) -> usize {
        self.parts.len()
    }

    /// `count` copies, one after the other.
    ///
    /// # Errors
    /// See [`Datatype`].
    pub fn contiguous(&self, count: u64) -> Result<Datatype, RegionError> {
        self.repeated(self.extent_bytes(), count)
    }

    /// `count` blocks of `block_length` copies each; blocks start `stride` extents of the type apart.
    ///
    /// # Errors
    /// See [`Datatype`].
    pub fn vector(&self, count: u64, block_length: u64, stride: u64) -> Result<Datatype, RegionError> {
        let stride_bytes = if count > 1 { product(stride, self.extent_bytes())? } else { 0 };
        self.hvector(count, block_length, stride_bytes)
    }

    /// `count` blocks of `block_length` copies each; blocks start `stride_bytes` apart.
    ///
    /// # Errors
    /// See [`Datatype`].
    pub fn hvector(&self, count: u64, block_length: u64, stride_bytes: u64) -> Result<Datatype, RegionError> {
        self.contiguous(block_length)?.repeated(stride_bytes, count)
    }

    /// A block of copies for each pair of (block length, displacement in extents of the type). Blocks of length zero
    /// are left out.
    ///
    /// # Errors
    /// See [`Datatype`].
    pub fn indexed(&self, blocks: &[(u64, u64)]) -> Result<Datatype, RegionError> {
        let extent = self.extent_bytes();
        let in_bytes = |block: &(u64, u64)| Ok((block.0, product(block.1, extent)?));
        let blocks: Result<Vec<(u64, u64)>, RegionError> = blocks.iter().map(in_bytes).collect();
        self.hindexed(&blocks?)
    }

    /// A block of copies for each pair of (block length, displacement in bytes). Blocks of length zero are left out.
    ///
    /// # Errors
    /// See [`Datatype`].
    pub fn hindexed(&self, blocks: &[(u64, u64)]) -> Result<Datatype, RegionError> {
        let field =
            |block: &(u64, u64)| Field { displacement_bytes: block.1, count: block.0, datatype: self };
        let fields: Vec<Field<'_>> = blocks.iter().map(field).collect();
        Datatype::structure(&fields)
    }

    /// Fields of different types, each at its displacement. Fields of no copies are left out; nothing is added behind
    /// the last field, see [`Datatype::resized`].
    ///
    /// # Errors
    /// See [`Datatype`].
    pub fn structure(fields: &[Field<'_>]) -> Result<Datatype, RegionError> {
        let mut whole: Option<Datatype> = None;
        for field in fields.iter().filter(|field| field.count > 0) {
            let field = field.datatype.contiguous(field.count)?.moved(field.displacement_bytes)?;
            whole = Some(match whole {
                None => field,
                Some(whole) => whole.and(field)?,
            });
        }
        whole.ok_or(RegionError::Empty)
    }

    /// The part of an array of `sizes` elements that starts at `starts` and is `subsizes` elements large; the extent of the
    /// new type is that of the whole array. The three lists have one entry for each dimension.
    ///
    /// # Errors
    /// See [`Datatype`]; [`RegionError::Overflow`] also for a part that reaches out of the array, and
    /// [`RegionError::Empty`] for lists of different lengths.
    pub fn subarray(
        &self,
        sizes: &[u64],
        subsizes: &[u64],
        starts: &[u64],
        order: Order,
    ) -> Result<Datatype, RegionError> {
        if sizes.is_empty() || sizes.len() != subsizes.len() || sizes.len() != starts.len() {
            return Err(RegionError::Empty);
        }
        let dimensions = sizes.iter().zip(subsizes).zip(starts);
        let mut dimensions: Vec<Dimension> = dimensions
            .map(|((size, subsize), start)| Dimension { size: *size, subsize: *subsize, start: *start })
            .collect();
        match order {
            Order::C => dimensions.reverse(),
            Order::Fortran => {}
        }
        let mut part = self.clone();
        let mut offset = 0_u64;
        let mut row = self.extent_bytes();
        for Dimension { size, subsize, start } in dimensions {
            if start.checked_add(subsize).is_none_or(|end| end > size) {
                return Err(RegionError::Overflow);
            }
            part = part.repeated(row, subsize)?;
            offset = offset.checked_add(product(start, row)?).ok_or(RegionError::Overflow)?;
            row = product(row, size)?;
        }
        part.moved(offset)?.resized(0, row)
    }

    /// The same bytes with other bounds, both in bytes from the start of the type.
    ///
    /// # Errors
    /// [`RegionError::Empty`] if `upper` is not greater than `lower`.
    pub fn resized(&self, lower: u64, upper: u64) -> Result<Datatype, RegionError> {
        if lower >= upper {
            return Err(RegionError::Empty);
        }
        Ok(Datatype { parts: self.parts.clone(), lower, upper })
    }

    /// The bytes that one copy of the type selects when it starts at `displacement_bytes` of the file.
    ///
    /// # Errors
    /// As of [`Region::from_sections`].
    pub fn region(&self, displacement_bytes: u64) -> Result<Region, RegionError> {
        Region::from_sections(self.moved(displacement_bytes)?.parts)
    }

    /// The bytes that `count` copies select, one after the other from `displacement_bytes` of the file on: a file view,
    /// if `count` is [`UNBOUNDED`](crate::UNBOUNDED).
    ///
    /// # Errors
    /// As of [`Datatype::contiguous`] and [`Region::from_sections`].
    pub fn tiled(&self, displacement_bytes: u64, count: u64) -> Result<Region, RegionError> {
        let moved = self.moved(displacement_bytes)?;
        Region::from_sections(repeated_parts(&moved.parts, self.extent_bytes(), count)?)
    }

    /// `count` copies, `stride` bytes apart.
    fn repeated(&self, stride: u64, count: u64) -> Result<Datatype, RegionError> {
        let parts = repeated_parts(&self.parts, stride, count)?;
        let last = product(stride, count.saturating_sub(1))?;
        let upper = self.upper.checked_add(last).ok_or(RegionError::Overflow)?;
        Ok(Datatype { parts, lower: self.lower, upper })
    }

    fn moved(&self, bytes: u64) -> Result<Datatype, RegionError> {
        let parts: Result<Vec<Section>, RegionError> =
            self.parts.iter().map(|part| copy_of(part, bytes, None)).collect();
        let moved = |bound: u64| bound.checked_add(bytes).ok_or(RegionError::Overflow);
        Ok(Datatype { parts: parts?, lower: moved(self.lower)?, upper: moved(self.upper)? })
    }

    fn and(mut self, other: Datatype) -> Result<Datatype, RegionError> {
        if self.parts.len() + other.parts.len() > PARTS_MAX {
            return Err(RegionError::TooMany);
        }
        self.parts.extend(other.parts);
        self.lower = self.lower.min(other.lower);
        self.upper = self.upper.max(other.upper);
        Ok(self)
    }
}

/// `count` copies of all `parts`, `stride` bytes apart: a level around each part, or, where that does not nest, copies of the part.
fn repeated_parts(parts: &[Section], stride: u64, count: u64) -> Result<Vec<Section>, RegionError> {
    let mut repeated = Vec::new();
    for part in parts {
        match copy_of(part, 0, Some((stride, count))) {
            Ok(section) => repeated.push(section),
            Err(RegionError::Overlapping) => {
                let room = u64::try_from(PARTS_MAX - repeated.len()).expect("PARTS_MAX is small");
                if count > room {
                    return Err(RegionError::TooMany);
                }
                for index in 0..count {
                    repeated.push(copy_of(part, product(stride, index)?, None)?);
                }
            }
            Err(error) => return Err(error),
        }
        if repeated.len() > PARTS_MAX {
            return Err(RegionError::TooMany);
        }
    }
    Ok(repeated)
}

/// The section `bytes` further on, with one more level around it.
fn copy_of(part: &Section, bytes: u64, around: Option<(u64, u64)>) -> Result<Section, RegionError> {
    let mut levels = [(0, 1); DEPTH_MAX + 1];
    for (pair, level) in levels.iter_mut().zip(part.levels()) {
        *pair = (level.stride(), level.count());
    }
    if let Some(around) = around {
        levels[DEPTH_MAX] = around;
    }
    let offset = part.offset().checked_add(bytes).filter(|offset| *offset < Extent::EOF);
    Section::new(offset.ok_or(RegionError::Overflow)?, part.length(), &levels)
}

fn product(a: u64, b: u64) -> Result<u64, RegionError> {
    a.checked_mul(b).ok_or(RegionError::Overflow)
}
