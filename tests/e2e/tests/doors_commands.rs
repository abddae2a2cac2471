//! Ordinary commands and shells on ccPFS paths, unmodified.

use ccpfs_e2e::{Cluster, Options};

fn two_servers() -> Cluster {
    Cluster::start(&Options { servers: 2, stripes: 2, stripe_size: "64KiB", ..Options::default() })
}

/// The size of what lies in the namespace itself, as seen without ccPFS.
fn stub_size(cluster: &Cluster, name: &str) -> u64 {
    std::fs::metadata(cluster.namespace().join(name)).expect("the stub is there").len()
}

#[test]
fn what_dd_writes_is_what_cp_cmp_cat_and_sha256sum_read() {
    let cluster = two_servers();
    let out = cluster.shell(
        r#"
        dd if=/dev/urandom of="$OUT/original" bs=47008 count=50 status=none
        dd if="$OUT/original" of="$NS/a" bs=1000 status=none
        cp "$NS/a" "$NS/b"
        cp "$NS/b" "$OUT/copy"
        cmp "$OUT/original" "$NS/a"
        cmp "$NS/a" "$NS/b"
        cat "$NS/a" | cmp - "$OUT/original"
        sha256sum < "$NS/b" > "$OUT/sum1"
        sha256sum < "$OUT/original" | cmp - "$OUT/sum1"
        (cd "$NS"; sha256sum a) | sed 's/a$/-/' | cmp - "$OUT/sum1"
        stat -c %s "$NS/b"
        "#,
    );
    assert_eq!(out, "2350400\n");
    assert_eq!(stub_size(&cluster, "a"), 64);
    assert_eq!(cluster.plain_shell("cmp $OUT/original $OUT/copy && echo same"), "same\n");
}

#[test]
fn sizes_are_those_of_the_data_in_every_listing() {
    let cluster = two_servers();
    let out = cluster.shell(
        r#"
        head -c 123456 /dev/zero > "$NS/f"; mkdir "$NS/d"; cp "$NS/f" "$NS/d/g"
        ls -l "$NS" | awk '/ f$/ { print $5 }'
        stat -c %s "$NS/f" "$NS/d/g"
        find "$NS" -type f -size +100k -printf '%f %s\n' | sort
        wc -c < "$NS/f"
        du -b "$NS/f" | cut -f 1
        test -s "$NS/f"
        truncate -s 10 "$NS/f"; truncate -s +5 "$NS/f"; stat -c %s "$NS/f"
        ln -s "$NS/f" "$OUT/link"; stat -L -c %s "$OUT/link"; wc -c < "$OUT/link"
        "#,
    );
    assert_eq!(out, "123456\n123456\n123456\nf 123456\ng 123456\n123456\n123456\n15\n15\n15\n");
}

#[test]
fn redirections_append_and_pipes_of_bash_and_sh_work() {
    let cluster = two_servers();
    for shell in ["bash", "sh"] {
        let script = format!(
            r#"{shell} -ec '
            cd "$NS"
            echo one > f; echo two >> f; printf "%s\n" three >> f; cat < f
            (echo a; ls / > /dev/null; echo b; {shell} -c "echo inner"; echo c) > g; cat g
            while read -r line; do echo "<$line>"; done < f
            exec 5> h; echo five >&5; echo again >&5; exec 5>&-; cat h
            exec 6< f; read -r x <&6; (read -r y <&6; echo "$y"); read -r z <&6; echo "$x $z"; exec 6<&-
            cat f | tr a-z A-Z | tee up1 up2 > up3; cmp up1 up2; cmp up1 up3; head -n 1 up3
            echo to-stderr 2> e >&2; cat e
            rm f g h e up1 up2 up3; ls
            '"#
        );
        let expected = "one\ntwo\nthree\na\nb\ninner\nc\n<one>\n<two>\n<three>\nfive\nagain\ntwo\none three\nONE\nto-stderr\n";
        assert_eq!(cluster.shell(&script), expected, "{shell}");
    }
}

#[test]
fn appends_of_many_processes_all_arrive() {
    let cluster = two_servers();
    let out = cluster.shell(
        r#"
        cd "$NS"
        for writer in 1 2 3 4; do
            (for i in $(seq 100); do echo "$writer $i"; done >> log) &
        done
        wait
        sort -u log | wc -l; wc -l < log
        "#,
    );
    assert_eq!(out.split_whitespace().collect::<Vec<_>>(), ["400", "400"]);
}

#[test]
fn text_tools_read_write_and_edit_in_place() {
    let cluster = two_servers();
    let out = cluster.shell(
        r#"
        cd "$NS"
        seq 100000 > s; tail -n 2 s; tail -c 7 s; head -n 1 s; wc -l < s; grep -c 7 s
        awk 'END { print NR }' s; sort -rn s | head -n 1 || true; sort -rn -o s s; head -n 1 s
        sed -i s/99999/replaced/ s; sed -n 2p s
        tac s | head -n 1 || true
        split -l 50000 s part.; cat part.aa part.ab | cmp - s
        gzip -k s; gunzip -c s.gz | cmp - s
        tar cf t.tar s; mkdir x; tar xf t.tar -C x; cmp s x/s; diff -q s x/s
        "#,
    );
    let expected = "99999\n100000\n100000\n1\n100000\n40951\n100000\n100000\n100000\nreplaced\n1\n";
    assert_eq!(out, expected);
    assert_eq!(stub_size(&cluster, "s"), 64);
}

#[test]
fn moves_inside_keep_the_file_and_moves_across_the_border_copy_it() {
    let cluster = two_servers();
    let out = cluster.shell(
        r#"
        echo content > "$NS/a"; echo other > "$NS/b"
        mv "$NS/a" "$NS/c"; cat "$NS/c"; test ! -e "$NS/a"
        mv "$NS/c" "$NS/b"; cat "$NS/b"
        mv "$NS/b" "$OUT/b"; cat "$OUT/b"; test ! -e "$NS/b"
        mv "$OUT/b" "$NS/d"; cat "$NS/d"; test ! -e "$OUT/b"
        ln "$NS/d" "$NS/e"; rm "$NS/d"; cat "$NS/e"
        ! ln "$NS/e" "$OUT/e" 2> /dev/null
        mkdir "$NS/dir"; mv "$NS/e" "$NS/dir/"; cat "$NS/dir/e"; mv "$NS/dir" "$OUT/"; cat "$OUT/dir/e"
        rm -r "$OUT/dir"; ls "$NS"
        "#,
    );
    assert_eq!(out, "content\n".repeat(7));
}

#[test]
fn permissions_and_times_are_the_users() {
    let cluster = two_servers();
    let out = cluster.shell(
        r#"
        cd "$NS"; umask 027; echo x > f; stat -c %a f; chmod 600 f; stat -c %a f
        touch -d '2001-02-03 04:05:06 UTC' f; date -u -r f +%Y
        for i in $(seq 20); do cp -p f g$i; done; ls -l --time-style=+%Y g* | grep -c ' 2001 '
        echo y >> f; test "$(date -r f +%Y)" -gt 2001; test f -nt g1
        set -o noclobber; ! echo z > f 2> /dev/null; cat f
        "#,
    );
    assert_eq!(out, "640\n600\n2001\n20\nx\ny\n");
}

#[test]
fn dd_seeks_skips_and_syncs() {
    let cluster = two_servers();
    let out = cluster.shell(
        r#"
        cd "$NS"; seq 100000 > s; cp s "$OUT/s"
        for to in a "$OUT/a"; do
            dd if="$OUT/s" of="$to" bs=1000 skip=3 seek=5 count=2 status=none; stat -c %s "$to"
            dd if=/dev/zero of="$to" bs=1 count=1 seek=6003 conv=notrunc status=none; stat -c %s "$to"
        done
        cmp a "$OUT/a"
        dd if=s of=b bs=64k oflag=direct,sync conv=fsync status=none; cmp s b
        dd if="$OUT/s" of=c bs=47008 oflag=append conv=notrunc status=none; cmp s c
        "#,
    );
    assert_eq!(out, "7000\n".repeat(4));
}
