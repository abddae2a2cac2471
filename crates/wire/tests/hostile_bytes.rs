//! Decoding survives anything.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use ccpfs_region::{Region, Section, UNBOUNDED};
use ccpfs_types::{
    Extent, FileId, GroupId, Layout, LockId, LockMode, LockState, Part, Policy, RequestId, ResourceId, Sn,
    Terms,
};
use ccpfs_wire::{DecodeError, GrantedLock, LockRef, Message, Status, WritePiece, decode_batch, encode_into};
use proptest::prelude::*;

fn samples() -> Vec<Message> {
    let resource = ResourceId { file: FileId([7; 16]), stripe: 3 };
    let extent = Extent::new(47_008, 94_016).unwrap();
    vec![
        Message::Welcome { version: 1, policy: Policy::LUSTRE, target: 2, epoch: 9 },
        Message::Refused { reason: "protocol version 2, this server speaks 1".into() },
        Message::Grant {
            request: RequestId(5),
            resource,
            granted: GrantedLock {
                lock: LockId(8),
                mode: LockMode::Pw,
                region: Region::from(extent),
                sn: Sn(11),
                state: LockState::Canceling,
                replaces: vec![LockId(1), LockId(2)],
                early: true,
            },
        },
        Message::Write {
            request: RequestId(6),
            urgent: true,
            pieces: vec![WritePiece { resource, extent, sn: Sn(4) }; 3],
            releases: vec![LockRef { resource, lock: LockId(9) }],
        },
        Message::Done { request: RequestId(1), status: Status::Errno(28) },
        Message::StatusReply { request: RequestId(1), names: vec!["locks".into()], values: vec![3] },
        Message::Goodbye {},
        Message::Enqueue {
            request: RequestId(7),
            resource,
            mode: LockMode::Bw,
            required: list(3),
            desired: Section::new(4096, 1, &[(64, 1024), (262_144, UNBOUNDED)]).unwrap().into(),
            terms: Terms { try_only: true, part: Part::Next, group: GroupId(5) },
        },
        Message::Revoke { resource, lock: LockId(8), wanted: LockMode::Pr, region: several(5) },
        Message::Narrow { resource, lock: LockId(8), taken: Extent::to_eof(47_008) },
        Message::Denied {
            request: RequestId(7),
            resource,
            status: Status::Errno(11),
            first_common: Some(47_008),
        },
    ]
}

/// So many extents that are no section.
fn list(count: u64) -> Region {
    let extents = (0..count).map(|at| Extent::with_length(100 * at + at % 3, 7).unwrap());
    Region::from_extents(extents.collect()).unwrap()
}

/// So many sections of different strides, none of which joins another.
fn several(count: u64) -> Region {
    let section = |at: u64| Section::new(at << 20, 1, &[(16 + at, 4 + at)]).unwrap();
    Region::from_sections((0..count).map(section).collect()).unwrap()
}

/// What a batch of one Revoke with these bytes for a region gives.
fn decoded(region: &[u8]) -> Result<Region, DecodeError> {
    let resource = ResourceId { file: FileId([7; 16]), stripe: 3 };
    let whole = Message::Revoke { resource, lock: LockId(8), wanted: LockMode::Pr, region: Region::WHOLE };
    let mut batch = Vec::new();
    encode_into(&whole, &mut batch);
    batch.truncate(batch.len() - 17);
    batch.extend_from_slice(region);
    let body = u32::try_from(batch.len() - 6).unwrap();
    batch[2..6].copy_from_slice(&body.to_le_bytes());
    let message = decode_batch(&batch).next().unwrap()?;
    let Message::Revoke { region, .. } = message else { panic!("{} is no Revoke", message.name()) };
    Ok(region)
}

/// The bytes of a region: kind, count, and numbers, of which those of sections begin with a depth.
fn bytes(kind: u8, count: u8, sections: &[(Option<u8>, &[u64])]) -> Vec<u8> {
    let mut bytes = vec![kind, count];
    for (depth, numbers) in sections {
        bytes.extend(depth);
        bytes.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
    }
    bytes
}

#[test]
fn what_is_encoded_is_decoded() {
    let mut batch = Vec::new();
    for message in samples() {
        encode_into(&message, &mut batch);
    }
    let decoded: Result<Vec<_>, _> = decode_batch(&batch).collect();
    assert_eq!(decoded.unwrap(), samples());
}

#[test]
fn every_truncation_is_an_error() {
    for message in samples() {
        let mut batch = Vec::new();
        encode_into(&message, &mut batch);
        for length in 1..batch.len() {
            let result: Result<Vec<_>, _> = decode_batch(&batch[..length]).collect();
            assert!(result.is_err(), "{} cut to {length} bytes", message.name());
        }
    }
}

#[test]
fn a_list_that_claims_more_than_there_is_allocates_nothing() {
    let mut batch = Vec::new();
    encode_into(&Message::Sync { request: RequestId(1), resources: vec![] }, &mut batch);
    let at = batch.len() - 4;
    batch[at..].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(decode_batch(&batch).any(|m| m.is_err()));
}

#[test]
fn regions_are_encoded_in_as_many_bytes_as_the_format_says() {
    let length = |region: Region| {
        let resource = ResourceId { file: FileId([7; 16]), stripe: 3 };
        let message = Message::Revoke { resource, lock: LockId(8), wanted: LockMode::Pr, region };
        let mut batch = Vec::new();
        encode_into(&message, &mut batch);
        assert_eq!(decode_batch(&batch).next().unwrap().unwrap(), message);
        batch.len() - 6 - 20 - 8 - 1
    };
    assert_eq!(length(Region::WHOLE), 17);
    assert_eq!(length(list(64)), 2 + 64 * 16);
    let locks_of_a_byte = Section::new(0, 1, &[(64, 128 * 1024)]).unwrap();
    assert_eq!(length(locks_of_a_byte.into()), 2 + 17 + 16);
    assert_eq!(length(several(128)), 2 + 128 * 33);
}

#[test]
fn regions_that_are_not_in_normal_form_are_refused() {
    let fine = bytes(2, 1, &[(Some(1), &[0, 1, 64, 10])]);
    assert_eq!(decoded(&fine), Ok(Section::new(0, 1, &[(64, 10)]).unwrap().into()));
    for (what, wrong) in [
        ("no extents", bytes(1, 0, &[])),
        ("no sections", bytes(2, 0, &[])),
        ("an unknown kind", bytes(3, 1, &[(None, &[0, 1])])),
        ("one extent as a list", bytes(1, 1, &[(None, &[0, 1])])),
        ("an empty extent", bytes(1, 2, &[(None, &[5, 5, 7, 8])])),
        ("extents out of order", bytes(1, 3, &[(None, &[50, 51, 0, 1, 7, 8])])),
        ("extents that overlap", bytes(1, 2, &[(None, &[0, 10, 5, 20])])),
        ("extents that touch", bytes(1, 2, &[(None, &[0, 10, 10, 20])])),
        ("a list that is a section", bytes(1, 2, &[(None, &[0, 10, 20, 30])])),
        ("sections that are a list", bytes(2, 2, &[(Some(0), &[0, 10]), (Some(0), &[20, 11])])),
        ("a section without levels", bytes(2, 1, &[(Some(0), &[0, 10])])),
        ("pieces that touch", bytes(2, 1, &[(Some(1), &[0, 64, 64, 10])])),
        ("one copy", bytes(2, 1, &[(Some(1), &[0, 1, 64, 1])])),
        ("no copy", bytes(2, 1, &[(Some(1), &[0, 1, 64, 0])])),
        ("no stride", bytes(2, 1, &[(Some(1), &[0, 1, 0, 10])])),
        ("no length", bytes(2, 1, &[(Some(1), &[0, 0, 64, 10])])),
        ("levels that are one", bytes(2, 1, &[(Some(2), &[0, 1, 64, 10, 640, 10])])),
        ("levels out of order", bytes(2, 1, &[(Some(2), &[0, 1, 6400, 10, 64, 10])])),
        ("a byte beyond all files", bytes(2, 1, &[(Some(1), &[0, 1, 1 << 62, 10])])),
        ("an overflow", bytes(2, 1, &[(Some(1), &[u64::MAX, 1, 64, 10])])),
        ("a count that might be unbounded", bytes(2, 1, &[(Some(1), &[0, 1, 1 << 62, 4])])),
        ("too many levels", bytes(2, 1, &[(Some(9), &[0; 20])])),
        ("sections that overlap", bytes(2, 2, &[(Some(1), &[0, 1, 64, 10]), (Some(1), &[64, 1, 65, 10])])),
        ("sections that are one", bytes(2, 2, &[(Some(1), &[0, 1, 64, 10]), (Some(1), &[640, 1, 64, 10])])),
        ("too many sections", bytes(2, 129, &[(Some(1), [0, 1, 64, 10].as_slice()); 129])),
        ("more than there is", bytes(2, 128, &[(Some(1), &[0, 1, 64, 10])])),
    ] {
        assert!(decoded(&wrong).is_err(), "{what}: {:?}", decoded(&wrong));
    }
}

/// Any region that a lock may cover.
fn regions() -> impl Strategy<Value = Region> {
    let levels = prop::collection::vec((1_u64..300, 1_u64..5, any::<bool>()), 0..4);
    let section = (0_u64..100, 1_u64..5, levels).prop_map(|(offset, length, levels)| {
        let mut section = Section::new(offset, length, &[]).unwrap();
        let mut all: Vec<(u64, u64)> = Vec::new();
        for (gap, count, unbounded) in levels {
            let span = section.bounds().length();
            let wider =
                [all.as_slice(), &[(span.saturating_add(gap), if unbounded { UNBOUNDED } else { count })]];
            let Ok(next) = Section::new(offset, length, &wider.concat()) else { break };
            all = wider.concat();
            section = next;
        }
        section
    });
    prop_oneof![
        prop::collection::vec((0_u64..3000, 1_u64..40), 1..100).prop_filter_map("too many", |extents| {
            let extents =
                extents.into_iter().filter_map(|(start, length)| Extent::with_length(start, length));
            Region::from_extents(extents.collect()).filter(Region::is_lockable)
        }),
        prop::collection::vec(section.clone(), 1..6)
            .prop_filter_map("they overlap", |sections| Region::from_sections(sections).ok()),
        (prop::collection::vec(section, 1..4), 2_u32..5, 0_u32..2).prop_filter_map(
            "they overlap, or are elsewhere",
            |(sections, stripes, stripe)| {
                Region::of_stripe(sections, &Layout::new(stripes, 4096).unwrap(), stripe).ok().flatten()
            }
        ),
        (1_u64..50_000, 2_u64..9, 2_u32..5, 0_u32..2).prop_filter_map(
            "elsewhere",
            |(record, writers, stripes, stripe)| {
                let section = Section::new(record, record, &[(writers * record, UNBOUNDED)]).unwrap();
                Region::of_stripe(vec![section], &Layout::new(stripes, 4096).unwrap(), stripe).unwrap()
            }
        ),
    ]
}

proptest! {
    #[test]
    fn every_region_of_a_lock_comes_back_from_its_encoding(required in regions(), desired in regions()) {
        let message = Message::Enqueue {
            request: RequestId(7),
            resource: ResourceId { file: FileId([7; 16]), stripe: 3 },
            mode: LockMode::Bw,
            required,
            desired,
            terms: Terms::WAIT,
        };
        let mut batch = Vec::new();
        encode_into(&message, &mut batch);
        prop_assert_eq!(decode_batch(&batch).next().unwrap().unwrap(), message);
        // Whatever becomes of one byte, what is accepted is what it is sent as again.
        for at in 6..batch.len() {
            let mut flipped = batch.clone();
            flipped[at] ^= 1 << (at % 8);
            let message = decode_batch(&flipped).next();
            if let Some(Ok(message)) = message {
                let mut again = Vec::new();
                encode_into(&message, &mut again);
                prop_assert_eq!(&again, &flipped);
            }
        }
    }

    #[test]
    fn regions_of_random_numbers_never_panic(
        kind in 0_u8..5,
        count in 0_u8..5,
        numbers in prop::collection::vec(prop_oneof![0_u64..100, any::<u64>(), Just(u64::MAX)], 0..30),
        depths in prop::collection::vec(0_u8..10, 5),
    ) {
        let mut taken = numbers.as_slice();
        let mut sections: Vec<(Option<u8>, &[u64])> = Vec::new();
        for depth in depths {
            let (now, later) = taken.split_at(taken.len().min(2 + 2 * usize::from(depth)));
            sections.push(((kind == 2).then_some(depth), now));
            taken = later;
        }
        if let Ok(region) = decoded(&bytes(kind, count, &sections[..usize::from(count)])) {
            prop_assert!(region.is_lockable());
        }
    }

    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = decode_batch(&bytes).count();
    }

    #[test]
    fn flipped_bytes_never_panic(which in 0..samples().len(), at in any::<prop::sample::Index>(), to in any::<u8>()) {
        let mut batch = Vec::new();
        encode_into(&samples()[which], &mut batch);
        let at = at.index(batch.len());
        batch[at] = to;
        for message in decode_batch(&batch).flatten() {
            let mut again = Vec::new();
            encode_into(&message, &mut again);
            prop_assert_eq!(decode_batch(&again).next().unwrap().unwrap(), message);
        }
    }
}
