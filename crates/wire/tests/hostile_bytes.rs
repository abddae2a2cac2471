//! Decoding survives anything.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use ccpfs_region::Region;
use ccpfs_types::{Extent, FileId, LockId, LockMode, LockState, Policy, RequestId, ResourceId, Sn};
use ccpfs_wire::{GrantedLock, LockRef, Message, Status, WritePiece, decode_batch, encode_into};
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
    ]
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

proptest! {
    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = decode_batch(&bytes).count();
    }

    #[test]
    fn flipped_bytes_never_panic(which in 0_usize..7, at in any::<prop::sample::Index>(), to in any::<u8>()) {
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
