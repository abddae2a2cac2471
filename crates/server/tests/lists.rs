//! A shard tells what it has, page by page, also of stripes that are being made and removed.
#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use ccpfs_device::{FaultyDevice, MemoryDevice};
use ccpfs_types::{FileId, LockMode, ResourceId};
use ccpfs_wire::{Message, Status, StoredStripe};
use std::sync::Arc;
use support::{Client, config, extent, serve_on};

fn resource(file: u8, stripe: u32) -> ResourceId {
    ResourceId { file: FileId([file; 16]), stripe }
}

fn page(client: &Client, after: Option<ResourceId>, count_max: u32) -> (Vec<StoredStripe>, bool) {
    client.control.send(&Message::List { request: client.request(), after, count_max });
    let Message::ListReply { status, stripes, more, .. } = client.control.receive() else {
        panic!("a List is answered by a ListReply");
    };
    assert_eq!(status, Status::Ok);
    (stripes, more)
}

#[test]
fn pages_have_everything_once_in_order_of_file_and_stripe() {
    let device = Arc::new(FaultyDevice::new(MemoryDevice::new()));
    let server = serve_on(config(), device, 1);
    let client = Client::connect(&server.addresses()[0]);
    assert_eq!(page(&client, None, 10), (Vec::new(), false));
    let mut wanted = Vec::new();
    for (file, stripe, bytes) in [(3, 0, 5), (1, 300, 7), (200, 1, 1), (1, 2, 9), (255, 0, 2)] {
        let resource = resource(file, stripe);
        let lock = client.lock(resource, LockMode::Nbw, extent(0, 100));
        assert_eq!(client.flush(resource, 0, &vec![1; bytes], lock.sn), Status::Ok);
        wanted.push((resource, bytes as u64));
    }
    wanted.sort_unstable();
    for count_max in [0, 1, 2, 5, u32::MAX] {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let (stripes, more) = page(&client, after, count_max);
            assert!(stripes.len() <= usize::try_from(count_max.max(1)).unwrap());
            after = stripes.last().map(|stripe| stripe.resource).or(after);
            found.extend(stripes.iter().map(|stripe| (stripe.resource, stripe.length_bytes)));
            if !more {
                break;
            }
        }
        assert_eq!(found, wanted, "in pages of {count_max}");
    }
    assert_eq!(client.destroy(resource(1, 300)), Status::Ok);
    let (stripes, _) = page(&client, Some(resource(1, 2)), 1);
    assert_eq!(stripes[0].resource, resource(3, 0));
    assert!(stripes[0].modified_ns > 0 && stripes[0].stored_bytes >= 5);
}
