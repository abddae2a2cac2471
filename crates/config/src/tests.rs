//! What a configuration file may say, and how it is told that it may not.

use crate::{ClientConfig, ConfigFile, ServerConfig};
use ccpfs_types::{Layout, Policy};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const SMALL: &str = "
[cluster]
namespace = '/scratch/ns'
servers = ['tcp://node1:7000', 'unix:/run/ccpfs/s1']
[server]
data = '/data'
";

fn parse_with(text: &str, variables: &[(&str, &str)]) -> Result<ConfigFile, String> {
    let variables: BTreeMap<String, String> =
        variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    ConfigFile::parse(text, Some(Path::new("/etc/ccpfs.toml")), variables).map_err(|e| e.to_string())
}

/// The message about a small file with `more` appended and `variables` set.
fn message(more: &str, variables: &[(&str, &str)]) -> String {
    let checked = parse_with(&format!("{SMALL}{more}"), variables)
        .and_then(|file| file.validate().map_err(|error| error.to_string()));
    checked.expect_err(more)
}

#[test]
fn a_small_file_gets_the_documented_defaults() {
    let file = parse_with(SMALL, &[]).unwrap();
    file.validate().unwrap();
    let client = ClientConfig::from_file(&file).unwrap();
    assert_eq!(client.namespace, PathBuf::from("/scratch/ns"));
    assert_eq!(client.layout, Layout::new(1, 1 << 20).unwrap());
    assert_eq!((client.dirty_bytes_min, client.dirty_bytes_max), (256 << 20, 4 << 30));
    assert_eq!((client.cache_bytes, client.prefault_bytes, client.read_ahead_bytes), (4 << 30, 0, 4 << 20));
    assert!(client.flush_on_close && client.shards == 1 && client.force_write_mode.is_none());
    let server = ServerConfig::from_file(&file, 1).unwrap();
    assert_eq!(server.data, PathBuf::from("/data/server-1"));
    assert_eq!(server.listen, "unix:/run/ccpfs/s1".parse().unwrap());
    assert_eq!((server.policy, server.server_count, server.target_first()), (Policy::SEQDLM, 2, 1));
    let default = ClientConfig::with_defaults(&client.namespace, client.servers.clone());
    assert_eq!(client, default);
}

#[test]
fn targets_are_numbered_by_server_then_shard() {
    let file = parse_with(SMALL, &[("CCPFS_CLUSTER_SHARDS", "2")]).unwrap();
    let targets: Vec<String> =
        ClientConfig::from_file(&file).unwrap().targets().iter().map(ToString::to_string).collect();
    assert_eq!(
        targets,
        ["tcp://node1:7000", "tcp://node1:7001", "unix:/run/ccpfs/s1", "unix:/run/ccpfs/s1.1"]
    );
    let server = ServerConfig::from_file(&file, 1).unwrap();
    assert_eq!((server.target_first(), server.target_count()), (2, 4));
}

#[test]
fn the_environment_wins_over_the_file() {
    let variables = [
        ("CCPFS_CLIENT_DIRTY_MAX", "1GiB"),
        ("CCPFS_CLIENT_FLUSH_ON_CLOSE", "false"),
        ("CCPFS_CLUSTER_SERVERS", "unix:/a, unix:/b"),
        ("CCPFS_SERVER_DEVICE_BANDWIDTH", "500MiB/s"),
        ("CCPFS_CONFIG", "ignored"),
    ];
    let file = parse_with(&format!("{SMALL}[client]\ndirty_max = '2GiB'\n"), &variables).unwrap();
    let client = ClientConfig::from_file(&file).unwrap();
    assert_eq!((client.dirty_bytes_max, client.flush_on_close, client.servers.len()), (1 << 30, false, 2));
    let server = ServerConfig::from_file(&file, 0).unwrap();
    assert_eq!(server.device_bandwidth_bytes_per_s, Some(500 << 20));
}

#[test]
fn a_small_cache_alone_is_a_valid_configuration() {
    let file = parse_with(&format!("{SMALL}[client]\ncache = '4MiB'\n"), &[]).unwrap();
    let client = ClientConfig::from_file(&file).unwrap();
    assert_eq!(client.dirty_bytes_max, 4 << 20);
    assert!(client.dirty_bytes_min < client.dirty_bytes_max && client.read_ahead_bytes <= client.cache_bytes);
}

#[test]
fn errors_name_file_key_value_and_what_is_allowed() {
    for (more, parts) in [
        ("[client]\ndirty_mxa = 1\n", &["/etc/ccpfs.toml", "dirty_mxa", "dirty_max", "line 8"][..]),
        ("[clients]\n", &["/etc/ccpfs.toml", "clients", "client"]),
        ("[client]\ncache = '4X'\n", &["/etc/ccpfs.toml", "'4X'", "64KiB"]),
        ("[client]\ncache = '4KiB'\n", &["client.cache = 4KiB", "1MiB to 1TiB"]),
        (
            "[client]\ndirty_min = '2GiB'\ndirty_max = '1GiB'\n",
            &["client.dirty_min = 2GiB", "below client.dirty_max", "1GiB"],
        ),
        ("[client]\ndirty_max = '8GiB'\n", &["client.dirty_max = 8GiB", "client.cache", "4GiB"]),
        ("[client]\nprefault = '8GiB'\n", &["client.prefault = 8GiB", "client.cache"]),
        ("[client]\nlock_count_max = 1\n", &["client.lock_count_max = 1", "16 to 8192"]),
        ("[stripe]\nsize = 5000\n", &["stripe.size = 5000", "multiple of 4KiB"]),
        ("[stripe]\ncount = 0\n", &["stripe.count = 0", "1 to 2048"]),
        ("memory = '1MiB'\n", &["server.memory = 1MiB", "32MiB to 1TiB"]),
        ("device_bandwidth = '1KiB/s'\n", &["server.device_bandwidth = 1KiB/s", "at least 64KiB/s"]),
        ("device_threads = -1\n", &["/etc/ccpfs.toml", "device_threads"]),
    ] {
        let found = message(more, &[]);
        for part in parts {
            assert!(found.contains(part), "'{part}' is not in: {found}");
        }
    }
}

#[test]
fn errors_name_the_variable_that_a_value_came_from() {
    let found = message("", &[("CCPFS_CLIENT_CACHE", "1KiB")]);
    assert!(found.starts_with("environment variable CCPFS_CLIENT_CACHE: client.cache = 1KiB"), "{found}");
    let found = message("", &[("CCPFS_CLIENT_CACHE", "big")]);
    assert!(found.contains("CCPFS_CLIENT_CACHE") && found.contains("'big'"), "{found}");
    let found = message("", &[("CCPFS_CLIENT_CASH", "1GiB")]);
    assert!(found.contains("CCPFS_CLIENT_CASH") && found.contains("dirty_max, cache"), "{found}");
    let found = message("", &[("CCPFS_CLUSTER_POLICY", "gpfs")]);
    assert!(found.contains("CCPFS_CLUSTER_POLICY") && found.contains("seqdlm"), "{found}");
    let found = message("", &[("CCPFS_CLUSTER_SERVERS", "node1")]);
    assert!(found.contains("'node1'") && found.contains("tcp://host:port"), "{found}");
    let found = message("", &[("CCPFS_CLUSTER_SERVERS", "unix:/a,unix:/a")]);
    assert!(found.contains("only once"), "{found}");
    let found = message("", &[("CCPFS_CLUSTER_NAMESPACE", "relative")]);
    assert!(found.contains("cluster.namespace = 'relative'") && found.contains("absolute"), "{found}");
}

#[test]
fn what_is_required_is_asked_for() {
    for (text, key) in [
        ("", "cluster.namespace"),
        ("[cluster]\nnamespace = '/n'\n", "cluster.servers"),
        ("[cluster]\nnamespace = '/n'\nservers = []\n", "cluster.servers"),
    ] {
        let found = parse_with(text, &[]).unwrap().validate().unwrap_err().to_string();
        assert!(
            found.contains("/etc/ccpfs.toml") && found.contains(key) && found.contains("missing"),
            "{found}"
        );
    }
    let file = parse_with(SMALL, &[]).unwrap();
    assert!(ServerConfig::from_file(&file, 2).unwrap_err().to_string().contains("server 2"));
    let missing = ConfigFile::load(Some(Path::new("/nowhere/ccpfs.toml"))).unwrap_err().to_string();
    assert!(missing.contains("/nowhere/ccpfs.toml") && missing.contains("cannot read"), "{missing}");
}

#[test]
fn a_written_file_is_read_as_the_same() {
    let text = format!("{SMALL}memory = '64MiB'\n[client]\ncache = '1GiB'\nflush_on_close = false\n");
    let file = parse_with(&text, &[]).unwrap();
    let again = parse_with(&file.to_toml().unwrap(), &[]).unwrap();
    assert_eq!(file, again);
}
