//! Programs that have nothing to do with ccPFS do not notice it, and wrong settings are said once.

use ccpfs_e2e::{Cluster, Options, built, describe, finish, output_of};

#[test]
fn programs_on_ordinary_files_print_the_same_with_and_without() {
    let cluster = Cluster::start(&Options::default());
    let script = r#"
        rm -rf "$OUT/w"; mkdir "$OUT/w"; cd "$OUT/w"
        git init -q .; echo a > f; git add f; git -c user.name=a -c user.email=b commit -q -m first; git status --short
        git ls-files; seq 1000 > s; sort -rn s | head -n 2 || true; sed -i s/500/x/ s; grep -n x s
        cp s t; cmp s t; ls; stat -c %s s; tail -n 1 s; cat < s | wc -l; tar cf t.tar s; tar tf t.tar
        python3 -c 'import os, subprocess, mmap
f = open("p", "w+b"); f.write(b"x" * 5000); f.flush()
print(len(mmap.mmap(f.fileno(), 0)), os.fstat(f.fileno()).st_size, subprocess.run(["echo", "hi"], capture_output=True).stdout)'
        env -i cat f; exec 3< s; read -r x <&3; echo "$x"
    "#;
    let with = cluster.shell(script);
    assert_eq!(with, cluster.plain_shell(script));
    assert!(with.contains("5000 5000"), "{with}");
}

#[test]
fn a_program_that_uses_no_ccpfs_path_gets_no_thread_and_no_descriptor() {
    let cluster = Cluster::start(&Options::default());
    let threads = cluster.shell("grep Threads /proc/self/status; ls /proc/self/fd");
    assert_eq!(threads, cluster.plain_shell("grep Threads /proc/self/status; ls /proc/self/fd"));
}

#[test]
fn without_a_usable_configuration_one_line_says_so_and_the_program_runs() {
    let cluster = Cluster::start(&Options::default());
    std::fs::write(cluster.outside().join("bad.toml"), "[cluster]\nnonsense = 1\n").unwrap();
    let bad = cluster.outside().join("bad.toml").display().to_string();
    for (config, word) in [
        (None, "CCPFS_CONFIG"),
        (Some("/nonexistent/ccpfs.toml"), "/nonexistent/ccpfs.toml"),
        (Some(&*bad), "nonsense"),
    ] {
        let mut command = cluster.plain("bash");
        command.args(["-c", "ls / > /dev/null; cat ccpfs.toml > $OUT/o; cat $OUT/o | head -n 1; bash -c 'cat $OUT/o > /dev/null'"]);
        command.env("LD_PRELOAD", built("libccpfs_preload.so"));
        if let Some(config) = config {
            command.env("CCPFS_CONFIG", config);
        }
        let output = finish(&mut command);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && output.stdout == b"[cluster]\n", "{}", describe(&output));
        assert!(errors.starts_with("ccpfs: running without ccPFS") && errors.contains(word), "{errors}");
        // Only what is wrong inside the file is found late, by each program that asks.
        assert!(errors.lines().count() == 1 || word == "nonsense", "{errors}");
    }
}

#[test]
fn static_programs_run_as_they_always_did() {
    let cluster = Cluster::start(&Options::default());
    let source = cluster.outside().join("still.c");
    std::fs::write(&source, "#include <stdio.h>\nint main(void) { puts(\"still\"); return 0; }\n").unwrap();
    let program = cluster.compile("gcc", &source, &["-static".to_owned()]);
    assert_eq!(output_of(&mut cluster.command(program.to_str().unwrap())), "still\n");
}

#[test]
fn a_program_can_be_started_without_ccpfs_on_purpose() {
    let cluster = Cluster::start(&Options::default());
    let out = cluster.shell("echo data > $NS/f; env -i PATH=\"$PATH\" cat $NS/f; CCPFS_PRELOAD=off wc -c < /dev/null; env -i CCPFS_PRELOAD=off wc -c $NS/f | cut -d' ' -f1");
    assert_eq!(out, "data\n0\n64\n");
}

#[test]
fn closed_standard_descriptors_are_no_trouble() {
    let cluster = Cluster::start(&Options::default());
    let out = cluster.shell(
        "cd $NS; echo data > f; cat f <&-; (exec 0<&- 1>&-; echo inside > g); cat g; (exec 2>&-; cat f)\n\
         python3 -c 'import os; os.closerange(0, 1024); f = os.open(\"h\", os.O_CREAT | os.O_WRONLY); os.write(f, b\"h%d\\n\" % f)'\n\
         cat h",
    );
    assert_eq!(out, "data\ninside\ndata\nh0\n");
}
