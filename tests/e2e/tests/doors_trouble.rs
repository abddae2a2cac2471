//! What programs see when servers are down, stubs are broken, or the disk is not writable.

use ccpfs_e2e::{Cluster, Options, describe, finish, output_of};

const IMPATIENT: Options = Options {
    servers: 1,
    stripes: 1,
    stripe_size: "1MiB",
    policy: "seqdlm",
    client: "connect_timeout_ms = 200",
    server: "",
};

#[test]
fn a_server_that_is_down_is_an_input_output_error_that_names_it() {
    let mut cluster = Cluster::start(&IMPATIENT);
    assert_eq!(
        cluster.shell("for try in $(seq 50); do echo data > $NS/f && break; done 2> /dev/null; cat $NS/f"),
        "data\n"
    );
    cluster.kill_server(0);
    let output = finish(cluster.command("cat").arg(cluster.namespace().join("f")));
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{}", describe(&output));
    assert!(errors.contains("Input/output error") && errors.contains("unix:"), "{errors}");
    assert_eq!(cluster.shell("echo plain > $OUT/f; cat $OUT/f"), "plain\n");
    cluster.restart_server(0);
    let out = cluster.shell("for try in $(seq 50); do cat $NS/f && break; done 2> /dev/null");
    assert_eq!(out, "data\n");
}

#[test]
fn a_stub_with_a_flipped_bit_is_an_error_and_is_not_written_to() {
    let cluster = Cluster::start(&Options::default());
    let _ = cluster.shell("echo data > $NS/f");
    let path = cluster.namespace().join("f");
    let mut stub = std::fs::read(&path).unwrap();
    stub[20] ^= 1;
    std::fs::write(&path, &stub).unwrap();
    for script in ["cat $NS/f", "echo more >> $NS/f", "echo new > $NS/f", "truncate -s 5 $NS/f"] {
        let output = finish(cluster.command("bash").args(["-c", script]));
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && errors.contains("Input/output error"), "{}", describe(&output));
        assert!(errors.contains("ns/f") && errors.contains("no ccPFS file"), "{errors}");
        assert_eq!(std::fs::read(&path).unwrap(), stub, "{script}");
    }
    assert_eq!(cluster.shell("rm $NS/f; ls $NS"), "");
}

#[test]
fn ordinary_files_in_the_namespace_stay_ordinary() {
    let cluster = Cluster::start(&Options::default());
    std::fs::write(cluster.namespace().join("note"), "a note\n").unwrap();
    let out = cluster
        .shell("cat $NS/note; echo more >> $NS/note; wc -l < $NS/note; stat -c %s $NS/note; rm $NS/note");
    assert_eq!(out, "a note\n2\n12\n");
}

#[test]
fn symbolic_links_and_descriptor_names_from_outside_never_damage_a_stub() {
    let cluster = Cluster::start(&Options::default());
    let out = cluster.shell(
        "cd $OUT; echo data > $NS/f; ln -s $NS/f link; ln -s $NS dir; echo new > link; cat link dir/f
         echo more >> dir/f; cat $NS/f; exec 5>> $NS/f; echo fd > /dev/fd/5; cat /proc/self/fd/5; truncate -s 3 link; wc -c < $NS/f
         echo x > dir/created; cat $NS/created; rm dir/created; ls $NS",
    );
    assert_eq!(out, "new\nnew\nnew\nmore\nfd\n3\nx\nf\n");
    assert_eq!(std::fs::metadata(cluster.namespace().join("f")).unwrap().len(), 64);
}

#[test]
fn what_a_killed_writer_had_flushed_stays_and_others_go_on() {
    let cluster = Cluster::start(&Options::default());
    let script = r#"
import os, signal, sys
fd = os.open(sys.argv[1] + "/f", os.O_CREAT | os.O_RDWR)
os.write(fd, b"kept")
os.fsync(fd)
os.write(fd, b"lost or not")
os.kill(os.getpid(), signal.SIGKILL)
"#;
    let output = finish(cluster.command("python3").args(["-c", script]).arg(cluster.namespace()));
    assert!(!output.status.success());
    let found = cluster.shell("head -c 4 $NS/f; echo; printf next > $NS/f; cat $NS/f");
    assert_eq!(found, "kept\nnext");
}

#[test]
fn readers_see_what_another_process_has_not_flushed() {
    let cluster = Cluster::start(&Options::default());
    let script = r#"
import os, subprocess, sys
path = sys.argv[1] + "/f"
fd = os.open(path, os.O_CREAT | os.O_RDWR)
for i in range(20):
    os.pwrite(fd, b"%04d" % i, i * 4)
    assert os.stat(path).st_size == i * 4 + 4
    found = subprocess.run(["tail", "-c", "4", path], capture_output=True, check=True).stdout
    assert found == b"%04d" % i, found
print("all right")
"#;
    assert_eq!(
        output_of(cluster.command("python3").args(["-c", script]).arg(cluster.namespace())),
        "all right\n"
    );
}
