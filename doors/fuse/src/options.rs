//! Options of a mount, in the form of `mount -o`.

use std::time::Duration;

/// Whether requests come over rings (FUSE over io_uring) instead of the kernel's device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rings {
    /// If the kernel and this process can (default).
    #[default]
    Auto,
    /// Yes; else there is no mount.
    On,
    /// No.
    Off,
}

/// How the kernel is to treat a mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountOptions {
    /// What `mount` shows as the source.
    pub source: String,
    /// Whether other users may use the mount. Only root may say so, or whom `/etc/fuse.conf` allows it. Default: yes for root.
    pub allow_other: Option<bool>,
    /// How long the kernel believes names, 0 to keep the mount coherent with other doors (default).
    pub entry_timeout: Duration,
    /// How long the kernel believes sizes, times and permissions, 0 to keep the mount coherent with other doors (default).
    pub attr_timeout: Duration,
    /// Whether access control lists are checked. Default: if the namespace's file system has them.
    pub acl: Option<bool>,
    /// Largest write or read that the kernel sends at once, bytes, 4 KiB to 64 MiB; the kernel has a limit of its own.
    pub write_bytes_max: u32,
    /// Whether requests come over rings.
    pub rings: Rings,
    /// Whether the kernel is told a size ahead of the real one while several threads write a growing file, so that they do not take
    /// turns. The offset of a descriptor after `RWF_APPEND` then goes by that size. Default: yes.
    pub raise_size: bool,
    /// Flags of `mount(2)`: read-only, without set-user-id programs and so on.
    pub flags: libc::c_ulong,
}

impl Default for MountOptions {
    fn default() -> MountOptions {
        MountOptions {
            source: "ccpfs".to_owned(),
            allow_other: None,
            entry_timeout: Duration::ZERO,
            attr_timeout: Duration::ZERO,
            acl: None,
            write_bytes_max: 1 << 20,
            rings: Rings::Auto,
            raise_size: true,
            flags: 0,
        }
    }
}

/// Options that set or clear flags of `mount(2)`.
const FLAGS: [(&str, libc::c_ulong, bool); 18] = [
    ("ro", libc::MS_RDONLY, true),
    ("rw", libc::MS_RDONLY, false),
    ("nosuid", libc::MS_NOSUID, true),
    ("suid", libc::MS_NOSUID, false),
    ("nodev", libc::MS_NODEV, true),
    ("dev", libc::MS_NODEV, false),
    ("noexec", libc::MS_NOEXEC, true),
    ("exec", libc::MS_NOEXEC, false),
    ("noatime", libc::MS_NOATIME, true),
    ("atime", libc::MS_NOATIME, false),
    ("nodiratime", libc::MS_NODIRATIME, true),
    ("relatime", libc::MS_RELATIME, true),
    ("norelatime", libc::MS_RELATIME, false),
    ("sync", libc::MS_SYNCHRONOUS, true),
    ("async", libc::MS_SYNCHRONOUS, false),
    ("dirsync", libc::MS_DIRSYNC, true),
    ("silent", libc::MS_SILENT, true),
    ("loud", libc::MS_SILENT, false),
];

/// Options for other programs that read `/etc/fstab`, or that say what is so anyway.
const IGNORED: [&str; 13] = [
    "defaults",
    "auto",
    "noauto",
    "user",
    "nouser",
    "users",
    "group",
    "owner",
    "nofail",
    "_netdev",
    "default_permissions",
    "nonempty",
    "strictatime",
];

impl MountOptions {
    /// Whether reading a file moves its time of access.
    pub(crate) const fn notes_access(&self) -> bool {
        self.flags & (libc::MS_NOATIME | libc::MS_RDONLY) == 0
    }

    /// Takes options separated by commas, as after `-o`. Later ones win.
    ///
    /// # Errors
    /// A sentence that names the option that is not understood.
    pub fn parse(&mut self, text: &str) -> Result<(), String> {
        text.split(',').map(str::trim).filter(|option| !option.is_empty()).try_for_each(|o| self.take(o))
    }

    fn take(&mut self, option: &str) -> Result<(), String> {
        if let Some((_, flag, on)) = FLAGS.iter().find(|(name, ..)| *name == option) {
            self.flags = if *on { self.flags | flag } else { self.flags & !flag };
            return Ok(());
        }
        if IGNORED.contains(&option) || option.starts_with("x-") || option.starts_with("comment=") {
            return Ok(());
        }
        match option.split_once('=') {
            None if option == "allow_other" => self.allow_other = Some(true),
            None if option == "noallow_other" => self.allow_other = Some(false),
            None if option == "acl" => self.acl = Some(true),
            None if option == "noacl" => self.acl = Some(false),
            Some(("entry_timeout", value)) => self.entry_timeout = seconds(option, value)?,
            Some(("attr_timeout", value)) => self.attr_timeout = seconds(option, value)?,
            Some(("fsname", value)) => self.source = value.to_owned(),
            Some(("max_write" | "max_read", value)) => {
                let bytes = value.parse().ok().filter(|bytes| (4096..=64 << 20).contains(bytes));
                self.write_bytes_max =
                    bytes.ok_or(format!("'{option}': 4096 to 67108864 bytes are possible"))?;
            }
            None if option == "raise_size" => self.raise_size = true,
            None if option == "noraise_size" => self.raise_size = false,
            Some(("raise_size", value)) => {
                self.raise_size = match value {
                    "on" => true,
                    "off" => false,
                    _ => return Err(format!("'{option}': on or off are possible")),
                };
            }
            Some(("io_uring", value)) => {
                self.rings = match value {
                    "auto" => Rings::Auto,
                    "on" => Rings::On,
                    "off" => Rings::Off,
                    _ => return Err(format!("'{option}': auto, on or off are possible")),
                };
            }
            Some(_) | None => return Err(format!("mount option '{option}' is not known")),
        }
        Ok(())
    }
}

fn seconds(option: &str, value: &str) -> Result<Duration, String> {
    let parsed = value.parse::<f64>().ok().filter(|seconds| (0.0..=1e9).contains(seconds));
    parsed.map(Duration::from_secs_f64).ok_or_else(|| format!("'{option}': seconds are expected, as in 1.5"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_fstab_are_understood() {
        let mut options = MountOptions::default();
        options
            .parse("defaults,ro,nosuid,_netdev,x-systemd.automount,noauto,attr_timeout=1.5,fsname=burst,acl")
            .unwrap();
        assert_eq!(options.flags, libc::MS_RDONLY | libc::MS_NOSUID);
        assert_eq!(options.attr_timeout, Duration::from_millis(1500));
        assert_eq!((options.source.as_str(), options.acl), ("burst", Some(true)));
        assert!(options.raise_size);
        options.parse("rw,,suid,io_uring=off,raise_size=off").unwrap();
        assert_eq!((options.flags, options.rings, options.raise_size), (0, Rings::Off, false));
        options.parse("raise_size=on").unwrap();
        assert!(options.raise_size);
    }

    #[test]
    fn an_unknown_option_is_named() {
        let refuse = |text: &str| MountOptions::default().parse(text).unwrap_err();
        assert!(refuse("ro,frobnicate").contains("frobnicate"));
        assert!(refuse("attr_timeout=soon").contains("attr_timeout=soon"));
        assert!(refuse("attr_timeout=-1").contains("-1"));
        assert!(refuse("max_write=12").contains("4096"));
        assert!(refuse("io_uring=perhaps").contains("auto"));
        assert!(refuse("raise_size=sometimes").contains("off"));
    }
}
